UPDATE jobs
   SET step             = coalesce(told.step, jobs.step),
       percent          = coalesce(told.percent, jobs.percent),
       counters         = coalesce(told.counters, jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN (:now + CAST((told.eta_seconds) * 1000000 AS INTEGER)) ELSE jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, jobs.checkpoint),
       progress_at      = :now,
       version = jobs.version + 1,
       lease_expires_at = (:now + CAST((jobs.lease_seconds) * 1000000 AS INTEGER)),
       updated_at       = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token, value->>2 AS step, value->>3 AS percent, value->>4 AS counters, value->>5 AS eta_seconds, value->>6 AS checkpoint FROM json_each(:told)) AS told
 WHERE jobs.id = told.id
   AND jobs.state = 'running'
   AND jobs.lease_token = told.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > :now)
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, step, percent, data) SELECT id, version, tenant, updated_at, 'progress', NULL, NULL, attempt, epoch, :actor, lease_worker, reason, step, percent, counters FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
