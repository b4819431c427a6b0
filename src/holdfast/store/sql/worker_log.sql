-- What workers do, as lines in the log of events: there `job_id` is a worker, and the tenant nobody's.

-- name: unsaid_workers
-- Those of whom the log says something else than what is true now, or nothing. As `Worker.with_holding` has it: busy from
-- the claim on, whatever the last heartbeat said, and idle from the report on. Of one that is both by turns the log says
-- so once in `calm` seconds: there may be many servers that look, and many workers.
SELECT id, name, told, status
  FROM (SELECT id, name, told, told_at,
               CASE WHEN NOT enabled THEN 'disabled'
                    WHEN liveness = 'offline' THEN 'offline'
                    WHEN id IN (SELECT lease_worker FROM jobs WHERE state = 'running') THEN 'busy'
                    WHEN claim_scopes IS NOT NULL OR kind = 'local' AND liveness = 'busy' THEN 'idle'
                    WHEN liveness = 'active' THEN 'online'
                    ELSE liveness
                END AS status
          FROM workers) AS seen
 WHERE told IS DISTINCT FROM status
   AND NOT (told IN ('busy', 'idle')
            AND status IN ('busy', 'idle')
            AND coalesce(told_at > {now-:calm} AND told_at <= {now}, FALSE))
 ORDER BY id
 LIMIT {limit}
{skip_locked}

-- name: say_workers
INSERT INTO events (job_id, seq, {pos column}tenant, at, verb, attempt, epoch, actor, worker_id, reason, data)
SELECT said.id, coalesce((SELECT max(seq) FROM events WHERE job_id = said.id), 0) + 1, {pos of said}'*', {now}, 'worker', 0, 0, 'system',
       said.id, said.status, said.data
  FROM {rows:said(id uuid, status text, data text)}
RETURNING job_id

-- name: told_workers
UPDATE workers
   SET told    = said.status,
       told_at = {now}
  FROM {rows:said(id uuid, status text)}
 WHERE workers.id = said.id
RETURNING workers.id

-- name: old_worker_lines
-- The first few of each worker, so that nobody's long list is read through. The last one stays: the next takes its
-- number from it.
SELECT events.job_id, events.seq
  FROM workers
  JOIN events ON events.job_id = workers.id
             AND events.seq < (SELECT min(seq) FROM events AS first WHERE first.job_id = workers.id) + :each
 WHERE events.at <= {now-:seconds}
   AND events.seq < (SELECT max(seq) FROM events AS newest WHERE newest.job_id = workers.id)
 ORDER BY events.job_id, events.seq
 LIMIT {limit}

-- name: drop_worker_lines
DELETE FROM events
 WHERE EXISTS (SELECT 1
                 FROM {rows:old(job_id uuid, seq integer)}
                WHERE events.job_id = old.job_id
                  AND events.seq = old.seq)
RETURNING job_id
