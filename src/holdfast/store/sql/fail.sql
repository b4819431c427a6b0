-- name: held_jobs
-- What the retry decision needs, read with the row lock that the move needs anyway.
SELECT holdfast_jobs.id, holdfast_jobs.type, holdfast_jobs.lifecycle, holdfast_jobs.policy, holdfast_jobs.moves,
       holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.failures, holdfast_jobs.lost,
       holdfast_jobs.cancel_requested_at, holdfast_jobs.reason
  FROM holdfast_jobs
  JOIN {rows:held(id uuid, token uuid)} ON holdfast_jobs.id = held.id
 WHERE {running}
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = :worker
   AND {mine}
 ORDER BY holdfast_jobs.id
{locked}

-- name: retry_jobs
-- move: fail
-- ends: failed
-- data: error
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:fail>retrying},
       reason     = failed.reason,
       {next version},
       failures   = failures + 1,
       error      = failed.error,
       run_at     = {now+failed.delay_seconds},
       due        = failed.delay_seconds <= 0 AND moves & {bit:retrying>running} <> 0 AND attempt < max_attempts,
       {lease ended},
       updated_at = {now}
  FROM {rows:failed(id uuid, token uuid, reason text, error text, delay_seconds float8)}
 WHERE holdfast_jobs.id = failed.id
   AND {running}
   AND holdfast_jobs.lease_token = failed.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}

-- name: dead_letter_jobs
-- move: fail
-- ends: failed
-- data: error
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:fail>dead},
       reason      = failed.reason,
       {next version},
       failures    = failures + 1,
       error       = failed.error,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:failed(id uuid, token uuid, reason text, error text)}
 WHERE holdfast_jobs.id = failed.id
   AND {running}
   AND holdfast_jobs.lease_token = failed.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}

-- name: dead_letter_waiting
-- move: fail
-- data: error
-- The second step of lifecycles that reach `dead` only through `retrying`; also gives up a waiting retry.
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:fail>dead},
       reason      = buried.reason,
       due         = NULL,
       {next version},
       error       = coalesce(buried.error, holdfast_jobs.error),
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:buried(id uuid, reason text, error text)}
 WHERE holdfast_jobs.id = buried.id
   AND holdfast_jobs.state = 'retrying'
   AND {mine}
RETURNING {moved}
