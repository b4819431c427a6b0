WITH moved AS (
UPDATE jobs
   SET step             = coalesce(told.step, jobs.step),
       percent          = coalesce(told.percent, jobs.percent),
       counters         = coalesce(told.counters, jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN (coalesce($1::timestamptz, statement_timestamp()) + (told.eta_seconds) * interval '1 second') ELSE jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, jobs.checkpoint),
       progress_at      = coalesce($1::timestamptz, statement_timestamp()),
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
       lease_expires_at = (coalesce($1::timestamptz, statement_timestamp()) + (jobs.lease_seconds) * interval '1 second'),
       updated_at       = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::float8[], $6::text[], $7::float8[], $8::text[]) AS told(id, token, step, percent, counters, eta_seconds, checkpoint)
 WHERE jobs.id = told.id
   AND jobs.state || '' = 'running'
   AND jobs.lease_token = told.token
   AND jobs.lease_worker = $9
   AND (jobs.late_writes OR jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, step, percent, data, pos) SELECT id, version, tenant, updated_at, 'progress', NULL, NULL, attempt, epoch, $10, lease_worker, reason, step, percent, counters, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
