-- name: complete_jobs
-- move: complete
-- ends: succeeded
-- `transcode` jobs end with the step `finalize`; in other lifecycles the last reported step stays.
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:complete},
       reason      = NULL,
       {next version},
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN holdfast_jobs.lifecycle = 'transcode' THEN 'finalize' ELSE holdfast_jobs.step END,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:done(id uuid, token uuid, result text)}
 WHERE holdfast_jobs.id = done.id
   AND {running}
   AND holdfast_jobs.lease_token = done.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}
