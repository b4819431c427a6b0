-- Corrections after the database clock was set back: stored times lie in the future, and durations start again from now.
-- Differences of up to 5 s are ignored: concurrent statements and clock skew cause less.

-- name: leases_set_back
-- No lease lasts longer than `lease_seconds` from now. A live worker renews it; that of a dead worker expires.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_running
     WHERE (lease_expires_at > {now+lease_seconds + 5}
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
-- The backoff of a retry starts again from now.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = 'retrying'
       AND updated_at > {now+5}
     ORDER BY parked_at DESC
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET run_at     = {now} + (run_at - updated_at),
       updated_at = {now}
 WHERE id {in picked}
RETURNING id

-- name: delays_set_back
-- Jobs whose `run_at` fell into the last minute of the old clock, and that were not marked due yet, become due. Other
-- times stay: no job starts too early. Rows updated in the last minute already follow the new clock: `updated_at` is set
-- too, so that a clock set back by less than a minute does not select the same rows again.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked IN ('waiting', 'retrying')
       AND parked_at <= (SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap')
       AND parked_at > (SELECT swept_at FROM holdfast_sweeps WHERE name = 'reap') - ({now} - {now-60})
       AND NOT (updated_at > {now-60} AND updated_at <= {now+5})
     ORDER BY parked_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET run_at     = {now},
       updated_at = {now}
 WHERE id {in picked}
RETURNING id

-- name: turns_set_back
-- The turn of keyed lanes comes now. If their bucket has no tokens, a claim puts it off again.
WITH picked AS MATERIALIZED (
    SELECT key_lane AS id
      FROM holdfast_key_lanes
     WHERE turn_at > {now+5}
     ORDER BY key_lane
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_key_lanes SET turn_at = {now}, since = NULL WHERE key_lane {in picked} AND turn_at > {now+5} RETURNING key_lane

-- name: tokens_set_back
-- Buckets keep their tokens and fill from now on.
WITH picked AS MATERIALIZED (
    SELECT bucket AS id
      FROM holdfast_limit_tokens
     WHERE filled_at > {now+5}
     ORDER BY bucket
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_limit_tokens
   SET full_at   = {now} + (full_at - filled_at),
       filled_at = {now}
 WHERE bucket {in picked}
RETURNING bucket

-- name: limits_set_back
UPDATE holdfast_limits SET updated_at = {now} WHERE updated_at > {now+5} RETURNING name

-- name: workers_set_back
-- No heartbeat or registration lies in the future.
UPDATE holdfast_workers
   SET last_heartbeat_at = CASE WHEN last_heartbeat_at > {now} THEN {now} ELSE last_heartbeat_at END,
       registered_at     = CASE WHEN registered_at > {now} THEN {now} ELSE registered_at END
 WHERE last_heartbeat_at > {now+5}
    OR registered_at > {now+5}
RETURNING id

-- name: counts_set_back
UPDATE holdfast_counted SET taken_at = {now}, asked_at = {now} WHERE taken_at > {now+5} OR asked_at > {now+5} RETURNING name

-- name: sweeps_set_back
-- One process does the correction: `grace_until` holds the time of the old clock until it has finished.
UPDATE holdfast_sweeps
   SET grace_until = swept_at,
       swept_at = {now}
 WHERE name = 'reap'
   AND swept_at > {now+5}
RETURNING name

-- name: deliveries_set_back
-- It is not stored when `next_at` was written: shift it by as much as the clock.
UPDATE holdfast_deliveries
   SET next_at = next_at - ((SELECT grace_until FROM holdfast_sweeps WHERE name = 'reap') - {now})
 WHERE state = 'pending'
   AND next_at > {now}
RETURNING id

-- name: grace_set_back
UPDATE holdfast_sweeps SET grace_until = NULL WHERE name = 'reap' RETURNING name
