UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'succeeded',
       reason      = NULL,
       version = holdfast_jobs.version + 1, moved_by = ?,
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN holdfast_jobs.lifecycle = 'transcode' THEN 'finalize' ELSE holdfast_jobs.step END,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       finished_at = ?,
       updated_at  = ?
  FROM (SELECT ? AS id, ? AS token, ? AS result) AS done
 WHERE holdfast_jobs.id = done.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = done.token
   AND holdfast_jobs.lease_worker = ?
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > ?)
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.attempt, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'complete', came_from, state, attempt, epoch, moved_by, lease_worker, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
