-- What `holdfast top` looks at every second. Finished jobs are never counted as a whole: there may be any number.

-- name: top_backlog
-- All that waits, exactly: each part by an index that holds nothing else. `oldest_at` is of what could run now.
SELECT queue, 'waiting' AS place, count(*) AS jobs, min(run_at) AS oldest_at FROM jobs WHERE due GROUP BY queue
UNION ALL
SELECT queue, 'retrying', count(*), NULL FROM jobs WHERE state = 'retrying' AND NOT due GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*), NULL FROM jobs WHERE NOT due AND state <> 'retrying' GROUP BY queue
UNION ALL
SELECT queue, 'created', count(*), NULL FROM jobs WHERE state = 'created' GROUP BY queue

-- name: top_held
SELECT queue, lease_worker, count(*) AS jobs FROM jobs WHERE state = 'running' GROUP BY queue, lease_worker

-- name: top_running
SELECT id, type, queue, attempt, max_attempts, step, percent, eta_at, claimed_at, cancel_requested_at, lease_worker
  FROM jobs
 WHERE state = 'running'
 ORDER BY claimed_at, id
 LIMIT {limit}

-- name: top_deaths
-- The second condition is the index's own: without it SQLite would not see that the index will do.
SELECT queue, count(*) AS jobs
  FROM (SELECT queue, state
          FROM jobs
         WHERE finished_at >= {now-:seconds}
           AND finished_at IS NOT NULL AND state <> 'succeeded'
         ORDER BY finished_at DESC
         LIMIT {limit}) AS unhappy
 WHERE state = 'dead'
 GROUP BY queue

-- name: top_workers
-- Those alive, and those that went a short while ago.
SELECT {worker}
  FROM workers
 WHERE liveness <> 'offline'
    OR last_heartbeat_at >= {now-:seconds}
 ORDER BY registered_at, id
 LIMIT {limit}

-- name: top_flow
-- What came and went since the last look. `happened` counts all events since; the newest of them are sorted by queue
-- and way, and stand for the rest.
SELECT jobs.queue,
       CASE WHEN e.verb = 'create' THEN 'in'
            WHEN e.to_state IN ('succeeded', 'dead', 'canceled', 'rejected') THEN 'out'
            ELSE 'on'
       END AS way,
       count(*) AS jobs,
       (SELECT count(*) FROM events WHERE pos > :after AND pos < {horizon}) AS happened
  FROM (SELECT job_id, verb, to_state
          FROM events
         WHERE pos > :after AND pos < {horizon}
         ORDER BY pos DESC, job_id DESC, seq DESC
         LIMIT {limit}) AS e
  JOIN jobs ON jobs.id = e.job_id
 GROUP BY jobs.queue, way

-- name: top_ended
-- Newest first, so far as they are among the newest events.
SELECT e.job_id, jobs.type, jobs.queue, jobs.policy, e.to_state, e.reason, e.attempt, jobs.max_attempts, e.at,
       jobs.claimed_at
  FROM (SELECT pos, job_id, seq, to_state, reason, attempt, at
          FROM events
         WHERE pos > :after AND pos < {horizon}
         ORDER BY pos DESC, job_id DESC, seq DESC
         LIMIT {limit}) AS e
  JOIN jobs ON jobs.id = e.job_id
 WHERE e.to_state IN ('succeeded', 'dead', 'canceled', 'rejected')
 ORDER BY e.pos DESC, e.job_id DESC, e.seq DESC
