WITH moved AS (
INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
SELECT fresh.id, $1, $2, $3, CAST($4 AS bigint), $5, CAST($6 AS integer),
       CAST($7 AS integer), 'queued', $8, TRUE, 0, 1, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log), CAST($9 AS integer), coalesce($10::timestamptz, statement_timestamp()), coalesce($10::timestamptz, statement_timestamp()), coalesce($10::timestamptz, statement_timestamp()),
       CAST($11 AS float8), CAST($12 AS boolean), fresh.payload
  FROM (SELECT $13::uuid AS id, $14::text AS payload) AS fresh
 WHERE (SELECT digest FROM holdfast_lanes WHERE id = $4) = $15
   AND (SELECT digest FROM holdfast_policies WHERE id = $6) = $16
   AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = $2 AND t.needs IS NOT NULL)
RETURNING holdfast_jobs.id, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 1, $1, coalesce($10::timestamptz, statement_timestamp()), 'create', NULL, 'queued', 0, 0, $8, NULL, NULL, pos FROM moved WHERE TRUE AND TRUE),
ready AS (INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) SELECT $4, 0, FALSE, id, coalesce($10::timestamptz, statement_timestamp()) FROM moved)
SELECT id FROM moved LIMIT 1;
