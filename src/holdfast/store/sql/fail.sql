-- name: held_jobs
-- What a decision about an execution needs, read under the lock that the move will need anyway.
SELECT jobs.id, jobs.type, jobs.lifecycle, jobs.policy, jobs.moves, jobs.attempt, jobs.max_attempts, jobs.failures, jobs.lost,
       jobs.cancel_requested_at
  FROM jobs
  JOIN {rows:held(id uuid, token uuid)} ON jobs.id = held.id
 WHERE {running}
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = :worker
   AND {mine}
 ORDER BY jobs.id
{locked}

-- name: retry_jobs
-- move: fail
-- ends: failed
-- data: error
UPDATE jobs
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
 WHERE jobs.id = failed.id
   AND {running}
   AND jobs.lease_token = failed.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}

-- name: bury_jobs
-- move: fail
-- ends: failed
-- data: error
UPDATE jobs
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
 WHERE jobs.id = failed.id
   AND {running}
   AND jobs.lease_token = failed.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}

-- name: bury_waiting
-- move: fail
-- data: error
-- The last step of a lifecycle that reaches dead only through retrying, and how a waiting retry is given up.
UPDATE jobs
   SET came_from   = state,
       state       = {to:fail>dead},
       reason      = buried.reason,
       due         = NULL,
       {next version},
       error       = coalesce(buried.error, jobs.error),
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:buried(id uuid, reason text, error text)}
 WHERE jobs.id = buried.id
   AND jobs.state = 'retrying'
   AND {mine}
RETURNING {moved}
