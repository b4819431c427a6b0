WITH moved AS (
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'dead',
       reason      = failed.reason,
       version = holdfast_jobs.version + 1, moved_by = $1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       failures    = failures + 1,
       error       = failed.error,
       lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL,
       finished_at = coalesce($2::timestamptz, statement_timestamp()),
       updated_at  = coalesce($2::timestamptz, statement_timestamp())
  FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::text[]) AS failed(id, token, reason, error)
 WHERE holdfast_jobs.id = failed.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = failed.token
   AND holdfast_jobs.lease_worker = $7
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > coalesce($2::timestamptz, statement_timestamp()))
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos, holdfast_jobs.error
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data, pos) SELECT id, version, tenant, coalesce($2::timestamptz, statement_timestamp()), 'fail', came_from, state, attempt, epoch, $1, $7, reason, error, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
