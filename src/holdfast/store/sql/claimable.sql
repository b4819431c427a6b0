-- name: claimable
-- One read for an idle worker: is there anything to claim, when is the next delayed job due, has a lease expired? `due`
-- has the same conditions as `open_lanes`; a test compares the two. If there are more lanes than the limit, it is true:
-- the claim finds out.
WITH RECURSIVE {walk:zero}
SELECT w.enabled,
       {now} AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 {head of:walk.lane}
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE {mine or plain head}
                  AND {any:queues l.queue text}
                  AND {any:types l.type text}
                  AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:w.tenants} AS t))
                  AND NOT EXISTS (SELECT 1 FROM {items:l.requires} AS r WHERE r.value NOT IN (SELECT value FROM {items:w.offers} AS o))
                  AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
              )
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = {limit} AND walk.lane IS NOT NULL) AS due,
       {next due} AS next_at,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE {any:queues holdfast_jobs.queue text}
                  AND {mine or plain:holdfast_jobs}
                  AND lease_expires_at <= {now}) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker

-- name: instances
-- The named processes that hold leases now. Workers with a key are excluded: they use HTTP, choose their own instance names
-- and hold no advisory lock, so their names do not show whether they live.
SELECT DISTINCT lease_instance
  FROM holdfast_running
 WHERE lease_instance IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = holdfast_running.lease_worker)

-- name: held_by
SELECT id, lease_token
  FROM holdfast_running
 WHERE lease_worker = :worker
   AND lease_instance {in:instances text}
 ORDER BY id

-- name: still_held
-- Those of the given jobs that this worker holds, under any token, and that are not to be canceled. Takes no locks.
SELECT id, lease_token
  FROM holdfast_jobs
 WHERE id {in:ids uuid}
   AND state = 'running'
   AND lease_worker = :worker
   AND cancel_requested_at IS NULL
