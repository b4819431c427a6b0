-- name: renew_leases
-- A lease that ran out but was not reaped is still its holder's: the token decides, not the clock.
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
-- The answer says what a process must know to take turns with the others. They live who were heard from within half of
-- their offline time; whoever has a key speaks over HTTP and keeps nothing in order. `vitals` counts them likewise.
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
          EXISTS (SELECT 1 FROM holdfast_jobs WHERE state = 'running' AND lease_instance IS NOT NULL) AS busy
