WITH moved AS (
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'queued',
       reason     = freed.reason,
       version = holdfast_jobs.version + 1, moved_by = $1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       attempt    = attempt - 1,
       run_at     = (coalesce($2::timestamptz, statement_timestamp()) + (CASE WHEN woken_epoch = epoch THEN 0 ELSE freed.delay_seconds END) * interval '1 second'),
       due        = freed.delay_seconds <= 0 AND freed.reason <> 'waiting_for_children'
                    OR coalesce(woken_epoch = epoch, FALSE),
       step       = NULL,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       updated_at = coalesce($2::timestamptz, statement_timestamp())
  FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::float8[]) AS freed(id, token, reason, delay_seconds)
 WHERE holdfast_jobs.id = freed.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = freed.token
   AND holdfast_jobs.lease_worker = $7
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, coalesce($2::timestamptz, statement_timestamp()), 'release', 'running', 'queued', attempt, epoch, $1, $7, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
