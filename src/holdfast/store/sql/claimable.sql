-- name: claimable
-- One read for an idle worker: is there anything to claim, when is the next delayed job due, has a lease expired? `due`
-- has the same conditions as `open_lanes` and `open_key_lanes`; a test compares them. If there are more lanes than the
-- limit, it is true: the claim finds out.
WITH RECURSIVE {walk:zero},
{keyed:zero}
SELECT w.enabled,
       {now} AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 {head of:walk.lane}
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE {mine or plain head}
                  AND {open to worker})
       OR EXISTS (SELECT 1
                    FROM keyed
                    JOIN holdfast_lanes l ON l.id = keyed.lane
                   WHERE {open to worker}
                     AND {has turns:keyed.lane})
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = {limit} AND walk.lane IS NOT NULL)
       OR EXISTS (SELECT 1 FROM keyed WHERE keyed.nth = {limit} AND keyed.lane IS NOT NULL) AS due,
       {next due} AS next_at,
       {next turn} AS next_turn_at,
       {next tokens} AS tokens_in,
       EXISTS (SELECT 1 FROM {may be expired} AS holdfast_jobs
                WHERE {any:queues holdfast_jobs.queue text}
                  AND {mine or plain:holdfast_jobs}
                  AND lease_expires_at <= {now}) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker

-- name: claiming_instances
-- The named processes that may hold leases: without a look at their jobs, of which there are many. Workers with a key are
-- excluded: they use HTTP, choose their own instance names and hold no advisory lock, so their names do not show whether
-- they live.
SELECT DISTINCT lease_instance
  FROM {claims} AS claims
 WHERE lease_instance IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = claims.lease_worker)

-- name: instances
-- The named processes that hold leases now, of those with these names, or all.
SELECT DISTINCT lease_instance
  FROM {claimed by:instances} AS held
 WHERE {any:instances lease_instance text}
   AND lease_instance IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = held.lease_worker)

-- name: held_by
SELECT id, lease_token
  FROM {claimed by:instances} AS held
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
