WITH moved AS (
WITH ripe AS MATERIALIZED (
    SELECT id
      FROM jobs
     WHERE NOT due
       AND run_at <= coalesce($1::timestamptz, statement_timestamp())
       AND state = 'retrying'
       AND moves & 4 = 0
       AND attempt < max_attempts
       AND jobs.needs IS NULL
     ORDER BY run_at
     LIMIT 100
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
   SET came_from  = state,
       state      = 'queued',
       due        = TRUE,
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
       updated_at = coalesce($1::timestamptz, statement_timestamp())
 WHERE id = ANY(ARRAY(SELECT id FROM ripe))
   AND state = 'retrying'
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'requeue', came_from, state, attempt, epoch, $2, lease_worker, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
