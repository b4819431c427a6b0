-- Queries of `holdfast top`, run every second. They never count all finished jobs.

-- name: top_waiting
-- The exact number of claimable jobs, and how long the oldest has waited.
SELECT l.queue, CAST(sum(r.jobs) AS bigint) AS jobs, min(r.oldest_at) AS oldest_at
  FROM (SELECT lane, count(*) AS jobs, min(run_at) AS oldest_at FROM holdfast_ready GROUP BY lane) AS r
  JOIN holdfast_lanes l ON l.id = {lane of:r.lane}
 GROUP BY l.queue

-- name: top_counts
-- Each kind is counted up to the limit.
SELECT queue, 'created' AS kind, count(*) AS jobs FROM holdfast_jobs WHERE parked = 'created' GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*)
  FROM (SELECT queue FROM holdfast_jobs WHERE parked = 'waiting' ORDER BY parked_at LIMIT {limit}) AS later
 GROUP BY queue
UNION ALL
SELECT queue, 'retrying', count(*)
  FROM (SELECT queue FROM holdfast_jobs WHERE parked = 'retrying' ORDER BY parked_at LIMIT {limit}) AS retrying
 GROUP BY queue
UNION ALL
SELECT queue, 'dead', count(*)
  FROM (SELECT queue, parked_at FROM holdfast_jobs WHERE parked = 'dead' ORDER BY parked_at DESC LIMIT {limit}) AS dead
 WHERE parked_at >= {now-:seconds}
 GROUP BY queue

-- name: top_held
SELECT queue, lease_worker, count(*) AS jobs FROM holdfast_running GROUP BY queue, lease_worker

-- name: top_running
SELECT id, type, queue, attempt, max_attempts, step, percent, eta_at, claimed_at, cancel_requested_at, lease_worker
  FROM holdfast_running
 ORDER BY claimed_at, id
 LIMIT {limit}

-- name: top_workers
-- Live workers, and those that stopped recently.
SELECT {worker}
  FROM holdfast_workers
 WHERE liveness <> 'offline'
    OR last_heartbeat_at >= {now-:seconds}
 ORDER BY registered_at, id
 LIMIT {limit}

-- name: top_flow
-- Jobs created and finished between two refreshes. `happened` counts all job events; the newest of them are grouped by
-- queue and direction, as a sample of the rest.
SELECT holdfast_jobs.queue,
       CASE WHEN e.verb = 'create' THEN 'in'
            WHEN e.to_state IN ('succeeded', 'dead', 'canceled', 'rejected') THEN 'out'
            ELSE 'on'
       END AS way,
       count(*) AS events,
       (SELECT count(*) FROM holdfast_events WHERE pos > :after AND pos <= :until AND verb <> 'worker') AS happened
  FROM (SELECT job_id, verb, to_state
          FROM holdfast_events
         WHERE pos > :after
           AND pos <= :until
         ORDER BY pos DESC, job_id DESC, seq DESC
         LIMIT {limit}) AS e
  JOIN holdfast_jobs ON holdfast_jobs.id = e.job_id
 GROUP BY holdfast_jobs.queue, way

-- name: top_ended
-- Recently finished jobs, newest first, among the newest events.
SELECT e.job_id, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.policy, e.to_state, e.reason, e.attempt, holdfast_jobs.max_attempts,
       holdfast_jobs.claimed_at, e.at
  FROM (SELECT pos, job_id, seq, to_state, reason, attempt, at
          FROM holdfast_events
         WHERE pos > :after
           AND pos <= :until
         ORDER BY pos DESC, job_id DESC, seq DESC
         LIMIT {limit}) AS e
  JOIN holdfast_jobs ON holdfast_jobs.id = e.job_id
 WHERE e.to_state IN ('succeeded', 'dead', 'canceled', 'rejected')
 ORDER BY e.pos DESC, e.job_id DESC, e.seq DESC
