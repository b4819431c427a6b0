-- name: wake_waiting
-- note: wake
-- Its time has not come, and it need not wait for it. A retry that its lifecycle queues first is requeued instead.
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
-- If this execution is given back, the job does not wait.
UPDATE holdfast_jobs
   SET woken_epoch = epoch
 WHERE id {in:ids uuid}
   AND state = 'running'
RETURNING id
