UPDATE jobs
   SET came_from   = state,
       state       = 'dead',
       reason      = failed.reason,
       version = jobs.version + 1,
       failures    = failures + 1,
       error       = failed.error,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = :now,
       updated_at  = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS reason, value->>3 AS error FROM json_each(:failed)) AS failed
 WHERE jobs.id = failed.id
   AND jobs.state = 'running'
   AND jobs.lease_token = failed.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > :now)
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data) SELECT id, version, tenant, updated_at, 'fail', came_from, state, attempt, epoch, :actor, last_worker, reason, error FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason, error) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'failed', state, reason, error FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
