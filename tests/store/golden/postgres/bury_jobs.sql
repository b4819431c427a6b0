WITH moved AS (
UPDATE jobs
   SET came_from   = state,
       state       = 'dead',
       reason      = failed.reason,
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
       failures    = failures + 1,
       error       = failed.error,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = coalesce($1::timestamptz, statement_timestamp()),
       updated_at  = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[]) AS failed(id, token, reason, error)
 WHERE jobs.id = failed.id
   AND jobs.state || '' = 'running'
   AND jobs.lease_token = failed.token
   AND jobs.lease_worker = $6
   AND (jobs.late_writes OR jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data, pos) SELECT id, version, tenant, updated_at, 'fail', came_from, state, attempt, epoch, $7, last_worker, reason, error, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason, error) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'failed', state, reason, error FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
