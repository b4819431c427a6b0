WITH moved AS (
WITH picked AS MATERIALIZED (
    SELECT id
      FROM (SELECT id
              FROM jobs
             WHERE due
               AND lane = $1
               AND priority >= $2
               AND (run_at <= (coalesce($3::timestamptz, statement_timestamp()) - ($4) * interval '1 second') OR run_at > (coalesce($3::timestamptz, statement_timestamp()) + (5) * interval '1 second'))
               AND attempt < max_attempts
               AND jobs.needs IS NULL
             ORDER BY priority DESC, id
             LIMIT 100
            FOR UPDATE SKIP LOCKED) AS best
     LIMIT $5
)
UPDATE jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
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
RETURNING jobs.id, jobs.lease_token, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.priority, jobs.epoch, jobs.attempt, jobs.max_attempts, jobs.lost, jobs.lease_expires_at, jobs.claimed_at, jobs.created_at, jobs.run_at, jobs.payload, jobs.checkpoint, jobs.tags, jobs.trace, jobs.policy, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.updated_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, version, tenant, updated_at, 'claim', came_from, state, attempt, epoch, $8, lease_worker, reason, pos FROM moved WHERE TRUE AND TRUE)
SELECT id, lease_token, tenant, type, queue, lifecycle, priority, epoch, attempt, max_attempts, lost, lease_expires_at, claimed_at, created_at, run_at, payload, checkpoint, tags, trace, policy, version, came_from, state, reason, updated_at, cancel_requested_at, last_claimed_at FROM moved;
