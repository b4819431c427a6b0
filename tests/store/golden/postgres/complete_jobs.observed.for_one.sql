WITH moved AS (
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = 'succeeded',
       reason      = NULL,
       version = holdfast_jobs.version + 1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN holdfast_jobs.lifecycle = 'transcode' THEN 'finalize' ELSE holdfast_jobs.step END,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = coalesce($1::timestamptz, statement_timestamp()),
       updated_at  = coalesce($1::timestamptz, statement_timestamp())
  FROM (SELECT $2::uuid AS id, $3::uuid AS token, $4::text AS result) AS done
 WHERE holdfast_jobs.id = done.id
   AND holdfast_jobs.state || '' = 'running'
   AND holdfast_jobs.lease_token = done.token
   AND holdfast_jobs.lease_worker = $5
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.attempt, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.lease_worker, holdfast_jobs.last_worker, holdfast_jobs.last_instance, holdfast_jobs.last_token, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters, holdfast_jobs.error, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'complete', came_from, state, attempt, epoch, $6, last_worker, reason, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO holdfast_attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'succeeded', state, reason FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, attempt FROM moved;
