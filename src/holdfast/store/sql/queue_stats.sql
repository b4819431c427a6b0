-- Queue statistics: waiting and running jobs of each queue and type, counted by one process and stored for all of them.

-- name: queue_stats
-- A delayed job whose time has come counts as waiting, also before `mark_due_jobs` has marked it due. ORDER BY and LIMIT
-- keep PostgreSQL on the index.
SELECT CASE WHEN d.kind = 'waiting' AND EXISTS (SELECT 1 FROM holdfast_queues q
                                                  WHERE q.tenant = l.tenant
                                                    AND q.name = l.queue
                                                    AND q.paused_at IS NOT NULL)
            THEN 'paused'
            ELSE d.kind
       END AS kind, l.queue, l.type, d.jobs, d.oldest_at, {now} AS seen_at
  FROM (SELECT 'waiting' AS kind, lane, count(*) AS jobs, min(run_at) AS oldest_at FROM holdfast_ready GROUP BY lane
        UNION ALL
        SELECT CASE WHEN run_at <= {now} THEN 'waiting' WHEN state = 'retrying' THEN 'retrying' ELSE 'delayed' END AS kind,
               lane, count(*), min(run_at)
          FROM (SELECT * FROM (SELECT lane, state, run_at FROM holdfast_jobs WHERE parked = 'waiting' ORDER BY parked_at LIMIT {limit}) AS delayed
                UNION ALL
                SELECT * FROM (SELECT lane, state, run_at FROM holdfast_jobs WHERE parked = 'retrying' ORDER BY parked_at LIMIT {limit}) AS retrying) AS later
         GROUP BY kind, lane
        UNION ALL
        SELECT 'created', lane, count(*), min(run_at) FROM holdfast_jobs WHERE parked = 'created' GROUP BY lane
        UNION ALL
        SELECT 'running', lane, count(*), min(run_at) FROM holdfast_running GROUP BY lane) AS d
  JOIN holdfast_lanes l ON l.id = {lane of:d.lane}

-- name: worker_stats
-- The number of workers of each status, and their slots.
SELECT CASE WHEN enabled THEN liveness ELSE 'disabled' END AS status, count(*) AS workers, coalesce(sum(slots), 0) AS slots
  FROM holdfast_workers
 GROUP BY status

-- name: counted
SELECT taken_at, figures, {now} AS seen_at FROM holdfast_counted WHERE name = :name

-- name: begin_count
-- One process gets the turn to count: when the figures are stale and the last counter has finished or timed out.
INSERT INTO holdfast_counted (name, taken_at, asked_at, figures) VALUES (:name, {now-1}, {now}, '')
    ON CONFLICT (name) DO UPDATE
   SET asked_at = excluded.asked_at
 WHERE holdfast_counted.taken_at <= {now-:age}
   AND (holdfast_counted.asked_at <= holdfast_counted.taken_at OR holdfast_counted.asked_at <= {now-:patience})
RETURNING asked_at

-- name: end_count
-- A process that has lost its turn stores nothing.
UPDATE holdfast_counted SET taken_at = {now}, figures = :figures WHERE name = :name AND asked_at = :asked_at RETURNING taken_at
