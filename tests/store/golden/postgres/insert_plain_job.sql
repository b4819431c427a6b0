WITH moved AS (
INSERT  INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
VALUES ($1, $2, $3, $4, (SELECT id FROM holdfast_lanes WHERE id = $5 AND digest = $6), $7,
        (SELECT id
           FROM holdfast_policies
          WHERE id = $8
            AND digest = $9
            AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = $3 AND t.needs IS NOT NULL)),
        $10, 'queued', $11, TRUE, 0, 1, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log), $12, coalesce($13::timestamptz, statement_timestamp()), coalesce($13::timestamptz, statement_timestamp()), coalesce($13::timestamptz, statement_timestamp()), $14, $15,
        $16)
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 1, $2, coalesce($13::timestamptz, statement_timestamp()), 'create', NULL, 'queued', 0, 0, $11, NULL, NULL, pos FROM moved WHERE TRUE AND TRUE),
ready AS (INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) SELECT $5, 0, FALSE, id, coalesce($13::timestamptz, statement_timestamp()) FROM moved)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
