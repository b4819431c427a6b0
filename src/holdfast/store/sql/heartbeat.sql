-- name: renew_leases
-- A lease that ran out but was not reaped is still its holder's: the token decides, not the clock.
UPDATE jobs
   SET lease_expires_at = {now+jobs.lease_seconds},
       updated_at       = {now}
  FROM {rows:held(id uuid, token uuid)}
 WHERE jobs.id = held.id
   AND {running}
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = :worker
RETURNING jobs.id, jobs.lease_token, jobs.cancel_requested_at, jobs.lease_expires_at

-- name: beat_worker
UPDATE workers
   SET last_heartbeat_at = {now},
       liveness          = :liveness,
       slots             = coalesce(:slots, slots)
 WHERE id = :worker
RETURNING enabled
