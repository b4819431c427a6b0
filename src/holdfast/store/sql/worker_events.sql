-- Events about workers in the event log: `job_id` is the id of the worker, and the tenant is '*'.

-- name: changed_workers
-- Workers whose status differs from the last one in the event log. As in `Worker.with_holding`, a worker is busy while it
-- holds a lease, whatever its last heartbeat said. A change between busy and idle is recorded at most once in `calm`
-- seconds per worker, for all servers together.
SELECT id, name, told, status
  FROM (SELECT id, name, told, told_at,
               CASE WHEN NOT enabled THEN 'disabled'
                    WHEN liveness = 'offline' THEN 'offline'
                    WHEN id IN (SELECT lease_worker FROM holdfast_running) THEN 'busy'
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

-- name: insert_worker_events
INSERT INTO holdfast_events (job_id, seq, {pos column}tenant, at, verb, attempt, epoch, actor, worker_id, reason, data)
SELECT said.id, coalesce((SELECT max(seq) FROM holdfast_events WHERE job_id = said.id), 0) + 1, {pos of said}'*', {now}, 'worker', 0, 0, 'system',
       said.id, said.status, said.data
  FROM {rows:said(id uuid, status text, data text)}
RETURNING job_id

-- name: mark_workers_recorded
UPDATE holdfast_workers
   SET told    = said.status,
       told_at = {now}
  FROM {rows:said(id uuid, status text)}
 WHERE holdfast_workers.id = said.id
RETURNING holdfast_workers.id

-- name: old_worker_events
-- The first few events of each worker, so that no long list is read. The last one stays: the next event is numbered
-- after it.
SELECT holdfast_events.job_id, holdfast_events.seq
  FROM holdfast_workers
  JOIN holdfast_events ON holdfast_events.job_id = holdfast_workers.id
             AND holdfast_events.seq < (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id) + :each
 WHERE holdfast_events.at <= {now-:seconds}
   AND holdfast_events.seq < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)
 ORDER BY holdfast_events.job_id, holdfast_events.seq
 LIMIT {limit}

-- name: drop_worker_events
DELETE FROM holdfast_events
 WHERE EXISTS (SELECT 1
                 FROM {rows:old(job_id uuid, seq integer)}
                WHERE holdfast_events.job_id = old.job_id
                  AND holdfast_events.seq = old.seq)
RETURNING job_id
