UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'succeeded',
       reason      = NULL,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN holdfast_jobs.lifecycle = 'transcode' THEN 'finalize' ELSE holdfast_jobs.step END,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       finished_at = :now,
       updated_at  = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS result FROM json_each(:done)) AS done
 WHERE holdfast_jobs.id = done.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = done.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > :now)
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'complete', came_from, state, attempt, epoch, moved_by, lease_worker, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
