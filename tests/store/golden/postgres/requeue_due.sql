WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = 'retrying'
       AND parked_at <= coalesce($1::timestamptz, statement_timestamp())
       AND moves & 4 = 0
       AND attempt < max_attempts
       AND holdfast_jobs.needs IS NULL
     ORDER BY parked_at
     LIMIT 100
    FOR UPDATE SKIP LOCKED
),
moved AS (
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'queued',
       due        = TRUE,
       version = holdfast_jobs.version + 1, moved_by = $2, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       updated_at = coalesce($1::timestamptz, statement_timestamp())
 WHERE id = ANY(ARRAY(SELECT id FROM ripe))
   AND state = 'retrying'
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos, holdfast_jobs.lease_worker
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, coalesce($1::timestamptz, statement_timestamp()), 'requeue', 'retrying', 'queued', attempt, epoch, $2, CASE WHEN state = 'running' THEN lease_worker END, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
