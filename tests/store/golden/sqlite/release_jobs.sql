UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'queued',
       reason     = freed.reason,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       attempt    = attempt - 1,
       run_at     = (:now + CAST((CASE WHEN woken_epoch = epoch THEN 0 ELSE freed.delay_seconds END) * 1000000 AS INTEGER)),
       due        = freed.delay_seconds <= 0 AND freed.reason <> 'waiting_for_children'
                    OR coalesce(woken_epoch = epoch, FALSE),
       step       = NULL,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       updated_at = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS reason, value->>3 AS delay_seconds FROM json_each(:freed)) AS freed
 WHERE holdfast_jobs.id = freed.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = freed.token
   AND holdfast_jobs.lease_worker = :worker
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'release', came_from, state, attempt, epoch, moved_by, lease_worker, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
