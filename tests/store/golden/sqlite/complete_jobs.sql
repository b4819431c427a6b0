UPDATE jobs
   SET came_from   = state,
       state       = 'succeeded',
       reason      = NULL,
       version = jobs.version + 1,
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN jobs.lifecycle = 'transcode' THEN 'finalize' ELSE jobs.step END,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = :now,
       updated_at  = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS result FROM json_each(:done)) AS done
 WHERE jobs.id = done.id
   AND jobs.state = 'running'
   AND jobs.lease_token = done.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > :now)
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'complete', came_from, state, attempt, epoch, :actor, last_worker, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'succeeded', state, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
