-- name: release_jobs
-- move: release
-- ends: released
-- The attempt is refunded; the epoch is not, so the old token stays invalid.
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:release},
       reason     = freed.reason,
       {next version},
       attempt    = attempt - 1,
       run_at     = {now+CASE WHEN woken_epoch = epoch THEN 0 ELSE freed.delay_seconds END},
       due        = freed.delay_seconds <= 0 AND freed.reason <> 'waiting_for_children'
                    OR coalesce(woken_epoch = epoch, FALSE),
       step       = NULL,
       {lease ended},
       updated_at = {now}
  FROM {rows:freed(id uuid, token uuid, reason text, delay_seconds float8)}
 WHERE holdfast_jobs.id = freed.id
   AND {running}
   AND holdfast_jobs.lease_token = freed.token
   AND holdfast_jobs.lease_worker = :worker
   AND {mine}
RETURNING {moved}
