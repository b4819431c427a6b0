UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'dead',
       reason      = failed.reason,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       failures    = failures + 1,
       error       = failed.error,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       finished_at = :now,
       updated_at  = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS reason, value->>3 AS error FROM json_each(:failed)) AS failed
 WHERE holdfast_jobs.id = failed.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = failed.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > :now)
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data) SELECT id, version, tenant, updated_at, 'fail', came_from, state, attempt, epoch, moved_by, lease_worker, reason, error FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
