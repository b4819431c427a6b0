WITH moved AS (
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'dead',
       reason      = failed.reason,
       version = holdfast_jobs.version + 1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       failures    = failures + 1,
       error       = failed.error,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = coalesce($1::timestamptz, statement_timestamp()),
       updated_at  = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) AS failed(id, token, reason, error)
 WHERE holdfast_jobs.id = failed.id
   AND holdfast_jobs.state || '' = 'running'
   AND holdfast_jobs.lease_token = failed.token
   AND holdfast_jobs.lease_worker = $6
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.lease_worker, holdfast_jobs.last_worker, holdfast_jobs.last_instance, holdfast_jobs.last_token, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters, holdfast_jobs.error, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data, pos) SELECT id, version, tenant, updated_at, 'fail', came_from, state, attempt, epoch, $7, last_worker, reason, error, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO holdfast_attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason, error) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'failed', state, reason, error FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
