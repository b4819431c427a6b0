-- name: complete_jobs
-- move: complete
-- ends: succeeded
-- `transcode` ends with a step of its own; in other lifecycles the last step that was reported stays.
UPDATE jobs
   SET came_from   = state,
       state       = {to:complete},
       reason      = NULL,
       {next version},
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN jobs.lifecycle = 'transcode' THEN 'finalize' ELSE jobs.step END,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:done(id uuid, token uuid, result text)}
 WHERE jobs.id = done.id
   AND {running}
   AND jobs.lease_token = done.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
   AND {mine}
RETURNING {moved}
