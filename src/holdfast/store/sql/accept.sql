-- name: accept_jobs
-- move: accept
-- A job that was due when it was created is due, also when the clock was set back since.
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:accept},
       reason     = NULL,
       due        = run_at <= {now} OR run_at <= created_at,
       {next version},
       updated_at = {now}
 WHERE id {in:ids uuid}
   AND state {from:accept}
   AND {mine}
RETURNING {moved}

-- name: orphans
-- Created, but the process that was to accept them died before it did. A job that was created in the future was created
-- before the clock was set back, some time ago; if its creator is still about to accept it, that does no harm. Not those
-- of policies that leave acceptance to others.
SELECT id, policy
  FROM holdfast_jobs
 WHERE state = 'created'
   AND (created_at <= {now-:seconds} OR created_at > {now+5})
   AND NOT policy {in:not_ours integer}
   AND {mine}
   AND {not held back:accept}
 ORDER BY created_at
 LIMIT {limit}
{skip_locked}
