UPDATE jobs
   SET came_from  = state,
       state      = 'retrying',
       reason     = gone.reason,
       version = jobs.version + 1,
       lost       = jobs.lost + gone.lost,
       error      = gone.error,
       run_at     = (:now + CAST((gone.delay_seconds) * 1000000 AS INTEGER)),
       due        = gone.delay_seconds <= 0 AND moves & 4 <> 0 AND attempt < max_attempts,
       step       = NULL,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       updated_at = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS lost, value->>3 AS reason, value->>4 AS error, value->>5 AS delay_seconds FROM json_each(:gone)) AS gone
 WHERE jobs.id = gone.id
   AND jobs.state = 'running'
   AND jobs.lease_token = gone.token
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data) SELECT id, version, tenant, updated_at, 'reap', came_from, state, attempt, epoch, :actor, last_worker, reason, error FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason, error) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'lost', state, reason, error FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
