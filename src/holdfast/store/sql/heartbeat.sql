-- name: renew_leases
-- An expired lease that was not reaped yet can still be renewed: the token decides, not the clock.
UPDATE holdfast_jobs
   SET lease_expires_at = {now+holdfast_jobs.lease_seconds},
       updated_at       = {now}
  FROM {rows:held(id uuid, token uuid)}
 WHERE holdfast_jobs.id = held.id
   AND {running}
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = :worker
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.cancel_requested_at, holdfast_jobs.lease_expires_at

-- name: beat_worker
-- The result tells a process its place in the maintenance rotation. A process counts as live if its last heartbeat is
-- younger than half its offline time. Workers with a key use HTTP and do no maintenance. `health` counts in the same way.
WITH others AS (
    SELECT id
      FROM holdfast_workers
     WHERE id <> :worker
       AND kind = 'local'
       AND liveness <> 'offline'
       AND coalesce(last_heartbeat_at, registered_at) > {now-0.5 * offline_seconds}
       AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = holdfast_workers.id)
)
UPDATE holdfast_workers
   SET last_heartbeat_at = {now},
       liveness          = :liveness,
       slots             = coalesce(:slots, slots)
 WHERE id = :worker
RETURNING enabled,
          (SELECT count(*) FROM others) AS others,
          (SELECT count(*) FROM others WHERE id < :worker) AS ahead,
          {some running:running.lease_instance IS NOT NULL} AS busy
