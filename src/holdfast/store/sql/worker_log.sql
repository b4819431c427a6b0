-- What workers do, as lines in the log of events: there `job_id` is a worker, and the tenant nobody's.

-- name: unsaid_workers
-- Those of whom the log says something else than what is true now, or nothing. As `Worker.with_holding` has it: busy from
-- the claim on, whatever the last heartbeat said, and idle from the report on. Of one that is both by turns the log says
-- so once in `calm` seconds: there may be many servers that look, and many workers.
SELECT id, name, told, status
  FROM (SELECT id, name, told, told_at,
               CASE WHEN NOT enabled THEN 'disabled'
                    WHEN liveness = 'offline' THEN 'offline'
                    WHEN id IN (SELECT lease_worker FROM holdfast_jobs WHERE state = 'running') THEN 'busy'
                    WHEN claim_scopes IS NOT NULL OR kind = 'local' AND liveness = 'busy' THEN 'idle'
                    WHEN liveness = 'active' THEN 'online'
                    ELSE liveness
                END AS status
          FROM holdfast_workers) AS seen
 WHERE told IS DISTINCT FROM status
   AND NOT (told IN ('busy', 'idle')
            AND status IN ('busy', 'idle')
            AND coalesce(told_at > {now-:calm} AND told_at <= {now}, FALSE))
 ORDER BY id
 LIMIT {limit}
{skip_locked}

-- name: say_workers
INSERT INTO holdfast_events (job_id, seq, {pos column}tenant, at, verb, attempt, epoch, actor, worker_id, reason, data)
SELECT said.id, coalesce((SELECT max(seq) FROM holdfast_events WHERE job_id = said.id), 0) + 1, {pos of said}'*', {now}, 'worker', 0, 0, 'system',
       said.id, said.status, said.data
  FROM {rows:said(id uuid, status text, data text)}
RETURNING job_id

-- name: told_workers
UPDATE holdfast_workers
   SET told    = said.status,
       told_at = {now}
  FROM {rows:said(id uuid, status text)}
 WHERE holdfast_workers.id = said.id
RETURNING holdfast_workers.id

-- name: old_worker_lines
-- The first few of each worker, so that nobody's long list is read through. The last one stays: the next takes its
-- number from it.
SELECT holdfast_events.job_id, holdfast_events.seq
  FROM holdfast_workers
  JOIN holdfast_events ON holdfast_events.job_id = holdfast_workers.id
             AND holdfast_events.seq < (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id) + :each
 WHERE holdfast_events.at <= {now-:seconds}
   AND holdfast_events.seq < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)
 ORDER BY holdfast_events.job_id, holdfast_events.seq
 LIMIT {limit}

-- name: drop_worker_lines
DELETE FROM holdfast_events
 WHERE EXISTS (SELECT 1
                 FROM {rows:old(job_id uuid, seq integer)}
                WHERE holdfast_events.job_id = old.job_id
                  AND holdfast_events.seq = old.seq)
RETURNING job_id
