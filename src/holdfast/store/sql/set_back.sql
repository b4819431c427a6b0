-- The database's clock was set back: times that were written before lie in the future now. What was meant to last from
-- then on lasts from now on. A difference of 5 s at most is none: machines and statements overlap by less.

-- name: leases_set_back
-- No lease lasts longer than from now on. A worker that lives renews it as ever; of one that does not, it runs out.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE state = 'running'
       AND (lease_expires_at > {now+lease_seconds + 5}
            OR claimed_at > {now+5}
            OR progress_at > {now+5}
            OR cancel_requested_at > {now+5})
     ORDER BY id
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET lease_expires_at    = CASE WHEN lease_expires_at > {now+lease_seconds} THEN {now+lease_seconds} ELSE lease_expires_at END,
       claimed_at          = CASE WHEN claimed_at > {now} THEN {now} ELSE claimed_at END,
       progress_at         = CASE WHEN progress_at > {now} THEN {now} ELSE progress_at END,
       cancel_requested_at = CASE WHEN cancel_requested_at > {now} THEN {now} ELSE cancel_requested_at END,
       updated_at          = {now}
 WHERE id {in picked}
RETURNING id

-- name: retries_set_back
-- A retry waits as long as its backoff is, from now on.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE state = 'retrying'
       AND NOT due
       AND updated_at > {now+5}
     ORDER BY run_at DESC
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET run_at     = {now} + (run_at - updated_at),
       updated_at = {now}
 WHERE id {in picked}
RETURNING id

-- name: delays_set_back
-- What became due in the last minute that is known of the old clock, and was not made claimable yet, is due. Any other
-- time that a job was given stays: it never starts too early. What was written in the last minute goes by the new clock:
-- so `updated_at` is set too, or a clock that went back by less than a minute would find the same rows again.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE NOT due
       AND run_at <= (SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap')
       AND run_at > (SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap') - ({now} - {now-60})
       AND NOT (updated_at > {now-60} AND updated_at <= {now+5})
     ORDER BY run_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET run_at     = {now},
       updated_at = {now}
 WHERE id {in picked}
RETURNING id

-- name: workers_set_back
-- They were heard from now at the latest.
UPDATE holdfast_workers
   SET last_heartbeat_at = CASE WHEN last_heartbeat_at > {now} THEN {now} ELSE last_heartbeat_at END,
       registered_at     = CASE WHEN registered_at > {now} THEN {now} ELSE registered_at END
 WHERE last_heartbeat_at > {now+5}
    OR registered_at > {now+5}
RETURNING id

-- name: counts_set_back
UPDATE holdfast_counted SET taken_at = {now}, asked_at = {now} WHERE taken_at > {now+5} OR asked_at > {now+5} RETURNING name

-- name: sweeps_set_back
-- One process takes it on: where the clock stood is in `grace_until` until it is done.
UPDATE holdfast_sweeps
   SET grace_until = swept_at,
       swept_at = {now}
 WHERE name = 'reap'
   AND swept_at > {now+5}
RETURNING name

-- name: deliveries_set_back
-- Of these it is not known when they were written: they move with the clock.
UPDATE holdfast_deliveries
   SET next_at = next_at - ((SELECT grace_until FROM holdfast_sweeps WHERE name = 'reap') - {now})
 WHERE state = 'pending'
   AND next_at > {now}
RETURNING id

-- name: grace_set_back
UPDATE holdfast_sweeps SET grace_until = NULL WHERE name = 'reap' RETURNING name
