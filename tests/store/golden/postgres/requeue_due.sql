WITH moved AS (
WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE NOT due
       AND run_at <= coalesce($1::timestamptz, statement_timestamp())
       AND state = 'retrying'
       AND moves & 4 = 0
       AND attempt < max_attempts
       AND holdfast_jobs.needs IS NULL
     ORDER BY run_at
     LIMIT 100
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'queued',
       due        = TRUE,
       version = holdfast_jobs.version + 1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       updated_at = coalesce($1::timestamptz, statement_timestamp())
 WHERE id = ANY(ARRAY(SELECT id FROM ripe))
   AND state = 'retrying'
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.lease_worker, holdfast_jobs.last_worker, holdfast_jobs.last_instance, holdfast_jobs.last_token, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters, holdfast_jobs.error, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'requeue', came_from, state, attempt, epoch, $2, lease_worker, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
