UPDATE jobs
   SET came_from  = state,
       state      = 'queued',
       reason     = freed.reason,
       version = jobs.version + 1,
       attempt    = attempt - 1,
       run_at     = (:now + CAST((CASE WHEN woken_epoch = epoch THEN 0 ELSE freed.delay_seconds END) * 1000000 AS INTEGER)),
       due        = freed.delay_seconds <= 0 AND freed.reason <> 'waiting_for_children'
                    OR coalesce(woken_epoch = epoch, FALSE),
       step       = NULL,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       updated_at = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS reason, value->>3 AS delay_seconds FROM json_each(:freed)) AS freed
 WHERE jobs.id = freed.id
   AND jobs.state = 'running'
   AND jobs.lease_token = freed.token
   AND jobs.lease_worker = :worker
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'release', came_from, state, attempt, epoch, :actor, last_worker, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason) SELECT id, epoch, tenant, attempt + 1, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'released', state, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
