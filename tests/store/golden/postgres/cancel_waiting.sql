WITH moved AS (
UPDATE jobs
   SET came_from           = state,
       state               = 'canceled',
       reason              = $1,
       due                 = NULL,
       version = jobs.version + 1, pos = greatest(jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM event_log)),
       cancel_requested_at = coalesce($2::timestamptz, statement_timestamp()),
       finished_at         = coalesce($2::timestamptz, statement_timestamp()),
       updated_at          = coalesce($2::timestamptz, statement_timestamp())
 WHERE id = ANY($3::uuid[])
   AND state IN ('created', 'queued', 'retrying')
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.lease_worker, jobs.last_worker, jobs.last_instance, jobs.last_token, jobs.step, jobs.percent, jobs.counters, jobs.error, jobs.pos
),
history0 AS (INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data, pos) SELECT id, version, tenant, updated_at, 'cancel', came_from, state, attempt, epoch, $4, lease_worker, reason, '{"control": "system.cancel"}', pos FROM moved WHERE TRUE AND TRUE)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, last_claimed_at FROM moved;
