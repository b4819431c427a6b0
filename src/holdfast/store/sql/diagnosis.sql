-- name: queue_counts
-- One scan of all jobs, for all queues.
SELECT tenant, queue, state, count(*) AS jobs, min(CASE WHEN due THEN run_at END) AS oldest_at
  FROM holdfast_jobs
 GROUP BY tenant, queue, state
 ORDER BY tenant, queue, state

-- name: held_by_worker
-- The number of leases of each worker, and its oldest.
SELECT lease_worker, jobs, id AS oldest
  FROM (SELECT lease_worker, id, count(*) OVER (PARTITION BY lease_worker) AS jobs,
               row_number() OVER (PARTITION BY lease_worker ORDER BY claimed_at, id) AS place
          FROM holdfast_running) AS ranked
 WHERE place = 1
 ORDER BY lease_worker

-- name: leases_long_over
SELECT count(*) AS jobs, min(lease_expires_at) AS oldest_at
  FROM holdfast_running
 WHERE lease_expires_at <= {now-:seconds}

-- name: waiting_lanes
-- Lanes with a due job, in a queue that is not paused.
WITH RECURSIVE {walk:zero},
{keyed:zero}
SELECT l.tenant, l.queue, l.type, l.requires
  FROM (SELECT lane FROM walk UNION SELECT lane FROM keyed) AS waiting
  JOIN holdfast_lanes l ON l.id = waiting.lane
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
 ORDER BY l.queue, l.type, l.id

-- name: recent_deaths
SELECT reason, count(*) AS jobs
  FROM holdfast_jobs
 WHERE parked = 'dead'
   AND parked_at >= {now-:seconds}
 GROUP BY reason
 ORDER BY jobs DESC, reason

-- name: last_sweep
-- When the last sweep ran, and whether there is anything to sweep.
SELECT (SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap') AS swept_at,
       EXISTS (SELECT 1 FROM holdfast_sweeps WHERE name = 'reap' AND swept_at > {now-:seconds}) AS fresh,
       EXISTS (SELECT 1 FROM holdfast_running) OR EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying')) AS needed

-- name: applied_migrations
SELECT extension, number, name FROM holdfast_migrations ORDER BY extension, number
