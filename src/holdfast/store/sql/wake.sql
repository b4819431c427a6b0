-- name: wake_waiting
-- note: wake
-- Makes a delayed job due now. A retry that its lifecycle returns to `queued` first is requeued instead.
UPDATE holdfast_jobs
   SET due        = TRUE,
       run_at     = {now},
       reason     = CASE WHEN state = 'queued' THEN 'woken' ELSE reason END,
       {next version},
       updated_at = {now}
 WHERE id {in:ids uuid}
   AND NOT due
   AND (state = 'queued' OR moves & {bit:retrying>running} <> 0)
RETURNING {moved}

-- name: wake_running
-- If this execution is released, the job is due at once.
UPDATE holdfast_jobs
   SET woken_epoch = epoch
 WHERE id {in:ids uuid}
   AND state = 'running'
RETURNING id
