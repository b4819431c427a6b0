-- name: accept_jobs
-- move: accept
UPDATE jobs
   SET came_from  = state,
       state      = {to:accept},
       reason     = NULL,
       due        = run_at <= {now},
       {next version},
       updated_at = {now}
 WHERE id {in:ids uuid}
   AND state {from:accept}
RETURNING {moved}

-- name: orphans
-- Created, but whoever was to accept them died before saying so. Not those of policies that leave it to others.
SELECT id, policy
  FROM jobs
 WHERE state = 'created'
   AND created_at <= {now-:seconds}
   AND NOT policy {in:not_ours integer}
 ORDER BY created_at
 LIMIT {limit}
{skip_locked}
