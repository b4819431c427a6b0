WITH moved AS (
UPDATE jobs
   SET came_from   = state,
       state       = 'succeeded',
       reason      = NULL,
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
       result      = done.result,
       error       = NULL,
       percent     = 100,
       step        = CASE WHEN jobs.lifecycle = 'transcode' THEN 'finalize' ELSE jobs.step END,
       last_worker = lease_worker, last_instance = lease_instance, last_token = lease_token, lease_worker = NULL, lease_instance = NULL, lease_token = NULL, lease_expires_at = NULL, last_claimed_at = claimed_at, claimed_at = NULL,
       finished_at = coalesce($1::timestamptz, statement_timestamp()),
       updated_at  = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS done(id, token, result)
 WHERE jobs.id = done.id
   AND jobs.state || '' = 'running'
   AND jobs.lease_token = done.token
   AND jobs.lease_worker = $5
   AND (jobs.late_writes OR jobs.lease_expires_at > coalesce($1::timestamptz, statement_timestamp()))
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'complete', came_from, state, attempt, epoch, $6, last_worker, reason, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason) SELECT id, epoch, tenant, attempt, last_worker, last_instance, last_token, last_claimed_at, updated_at, 'succeeded', state, reason FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
