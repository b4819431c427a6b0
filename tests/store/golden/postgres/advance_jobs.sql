WITH moved AS (
UPDATE holdfast_jobs
   SET step             = coalesce(told.step, holdfast_jobs.step),
       percent          = coalesce(told.percent, holdfast_jobs.percent),
       counters         = coalesce(told.counters, holdfast_jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN (coalesce($1::timestamptz, statement_timestamp()) + (told.eta_seconds) * interval '1 second') ELSE holdfast_jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, holdfast_jobs.checkpoint),
       progress_at      = coalesce($1::timestamptz, statement_timestamp()),
       version = holdfast_jobs.version + 1, moved_by = $2, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       lease_expires_at = (coalesce($1::timestamptz, statement_timestamp()) + (holdfast_jobs.lease_seconds) * interval '1 second'),
       updated_at       = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::float8[], $7::text[], $8::float8[], $9::text[]) AS told(id, token, step, percent, counters, eta_seconds, checkpoint)
 WHERE holdfast_jobs.id = told.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = told.token
   AND holdfast_jobs.lease_worker = $10
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos, holdfast_jobs.lease_worker, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, step, percent, data, pos) SELECT id, version, tenant, coalesce($1::timestamptz, statement_timestamp()), 'progress', NULL, NULL, attempt, epoch, $2, lease_worker, reason, step, percent, counters, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
