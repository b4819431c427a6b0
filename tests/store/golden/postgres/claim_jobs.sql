WITH moved AS (
WITH picked AS MATERIALIZED (
    SELECT id
      FROM (SELECT id
              FROM holdfast_jobs
             WHERE due
               AND lane = $1
               AND priority >= $2
               AND (run_at <= (coalesce($3::timestamptz, statement_timestamp()) - ($4) * interval '1 second') OR run_at > (coalesce($3::timestamptz, statement_timestamp()) + (5) * interval '1 second'))
               AND attempt < max_attempts
               AND holdfast_jobs.needs IS NULL
             ORDER BY priority DESC, id
             LIMIT 100
            FOR UPDATE SKIP LOCKED) AS best
     LIMIT $5
)
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = holdfast_jobs.version + 1, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = $6,
       lease_instance   = $7,
       lease_token      = gen_random_uuid(),
       lease_expires_at = (coalesce($3::timestamptz, statement_timestamp()) + (lease_seconds) * interval '1 second'),
       claimed_at       = coalesce($3::timestamptz, statement_timestamp()),
       started_at       = coalesce(started_at, coalesce($3::timestamptz, statement_timestamp())),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = coalesce($3::timestamptz, statement_timestamp())
 WHERE id = ANY(ARRAY(SELECT id FROM picked))
   AND state IN ('queued', 'retrying')
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.priority, holdfast_jobs.epoch, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.lost, holdfast_jobs.lease_expires_at, holdfast_jobs.claimed_at, holdfast_jobs.created_at, holdfast_jobs.run_at, holdfast_jobs.payload, holdfast_jobs.checkpoint, holdfast_jobs.tags, holdfast_jobs.trace, holdfast_jobs.policy, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.updated_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.lease_worker, holdfast_jobs.last_worker, holdfast_jobs.last_instance, holdfast_jobs.last_token, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters, holdfast_jobs.error, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'claim', came_from, state, attempt, epoch, $8, lease_worker, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, lease_token, tenant, type, queue, lifecycle, priority, epoch, attempt, max_attempts, lost, lease_expires_at, claimed_at, created_at, run_at, payload, checkpoint, tags, trace, policy, version, came_from, state, reason, updated_at, cancel_requested_at, last_claimed_at FROM moved;
