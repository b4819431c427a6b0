WITH moved AS (
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'retrying',
       reason     = gone.reason,
       version = holdfast_jobs.version + 1, moved_by = $1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       lost       = holdfast_jobs.lost + gone.lost,
       error      = gone.error,
       run_at     = (coalesce($2::timestamptz, statement_timestamp()) + (gone.delay_seconds) * interval '1 second'),
       due        = gone.delay_seconds <= 0 AND moves & 4 <> 0 AND attempt < max_attempts,
       step       = NULL,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       updated_at = coalesce($2::timestamptz, statement_timestamp())
  FROM unnest($3::uuid[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::float8[]) AS gone(id, token, lost, reason, error, delay_seconds)
 WHERE holdfast_jobs.id = gone.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = gone.token
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos, holdfast_jobs.lease_worker, holdfast_jobs.error
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data, pos) SELECT id, version, tenant, coalesce($2::timestamptz, statement_timestamp()), 'reap', came_from, state, attempt, epoch, $1, lease_worker, reason, error, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
