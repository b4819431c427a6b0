UPDATE holdfast_jobs
   SET step             = coalesce(told.step, holdfast_jobs.step),
       percent          = coalesce(told.percent, holdfast_jobs.percent),
       counters         = coalesce(told.counters, holdfast_jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN (:now + CAST((told.eta_seconds) * 1000000 AS INTEGER)) ELSE holdfast_jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, holdfast_jobs.checkpoint),
       progress_at      = :now,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       lease_expires_at = (:now + CAST((holdfast_jobs.lease_seconds) * 1000000 AS INTEGER)),
       updated_at       = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS step, value->>3 AS percent, value->>4 AS counters, value->>5 AS eta_seconds, value->>6 AS checkpoint FROM json_each(:told)) AS told
 WHERE holdfast_jobs.id = told.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = told.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > :now)
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, step, percent, data) SELECT id, version, tenant, updated_at, 'progress', NULL, NULL, attempt, epoch, moved_by, lease_worker, reason, step, percent, counters FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
