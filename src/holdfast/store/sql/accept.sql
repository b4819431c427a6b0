-- name: accept_jobs
-- move: accept
-- A job that was due when it was created stays due, even if the database clock was set back since.
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
-- Jobs left in `created` because the creating process died before it accepted them. A `created_at` in the future means
-- that the clock was set back; accepting such a job while its creator does the same is harmless. Policies in `not_ours`,
-- which are accepted explicitly, are excluded.
SELECT id, policy
  FROM holdfast_jobs
 WHERE parked = 'created'
   AND (parked_at <= {now-:seconds} OR parked_at > {now+5})
   AND NOT policy {in:not_ours integer}
   AND {mine}
   AND {not held back:accept}
 ORDER BY parked_at
 LIMIT {limit}
{skip_locked}
