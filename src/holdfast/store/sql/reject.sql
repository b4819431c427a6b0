-- name: reject_running
-- move: reject
-- ends: rejected
-- data: error
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:reject},
       reason      = verdict.reason,
       {next version},
       error       = verdict.error,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:verdict(id uuid, token uuid, reason text, error text)}
 WHERE holdfast_jobs.id = verdict.id
   AND {running}
   AND holdfast_jobs.lease_token = verdict.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}

-- name: reject_queued
-- move: reject
-- data: error
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:reject},
       reason      = verdict.reason,
       due         = NULL,
       {next version},
       error       = verdict.error,
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:verdict(id uuid, reason text, error text)}
 WHERE holdfast_jobs.id = verdict.id
   AND holdfast_jobs.state = 'queued'
   AND {mine}
RETURNING {moved}
