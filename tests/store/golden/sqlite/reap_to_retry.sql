UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'retrying',
       reason     = gone.reason,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       lost       = holdfast_jobs.lost + gone.lost,
       error      = gone.error,
       run_at     = (:now + CAST((gone.delay_seconds) * 1000000 AS INTEGER)),
       due        = gone.delay_seconds <= 0 AND moves & 4 <> 0 AND attempt < max_attempts,
       step       = NULL,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       updated_at = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS lost, value->>3 AS reason, value->>4 AS error, value->>5 AS delay_seconds FROM json_each(:gone)) AS gone
 WHERE holdfast_jobs.id = gone.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = gone.token
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data) SELECT id, version, tenant, updated_at, 'reap', came_from, state, attempt, epoch, moved_by, lease_worker, reason, error FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
