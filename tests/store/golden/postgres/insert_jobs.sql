WITH moved AS (
INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, key_lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, idempotency_key, key_live, fingerprint,
    payload, tags, trace, partition_key, limit_key, fairness_key, subject, redrive_of, root_id, parent_id, needs)
SELECT fresh.id, kind.tenant, kind.type, kind.queue, kind.lane, fresh.key_lane, kind.lifecycle, kind.policy, kind.moves,
       kind.state, $1,
       CASE WHEN kind.state = 'queued' THEN coalesce(fresh.run_at, (coalesce($2::timestamptz, statement_timestamp()) + (fresh.delay_seconds) * interval '1 second'), coalesce($2::timestamptz, statement_timestamp())) <= coalesce($2::timestamptz, statement_timestamp()) END,
       coalesce(fresh.priority, 0), kind.version, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log), coalesce(fresh.max_attempts, kind.max_attempts),
       coalesce(fresh.run_at, (coalesce($2::timestamptz, statement_timestamp()) + (fresh.delay_seconds) * interval '1 second'), coalesce($2::timestamptz, statement_timestamp())), coalesce($2::timestamptz, statement_timestamp()), coalesce($2::timestamptz, statement_timestamp()), kind.lease_seconds, kind.late_writes,
       fresh.idempotency_key, CASE WHEN fresh.idempotency_key IS NOT NULL THEN TRUE END, fresh.fingerprint,
       fresh.payload, fresh.tags, fresh.trace, fresh.partition_key, fresh.limit_key, fresh.fairness_key, fresh.subject,
       fresh.redrive_of, fresh.root_id, fresh.parent_id, kind.needs
  FROM unnest($3::uuid[], $4::integer[], $5::smallint[], $6::integer[], $7::timestamptz[], $8::float8[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::uuid[], $17::uuid[], $18::uuid[], $19::bigint[], $20::text[], $21::text[]) AS fresh(id, kind, priority, max_attempts, run_at, delay_seconds, payload, idempotency_key, fingerprint, tags, trace, partition_key, subject, redrive_of, root_id, parent_id, key_lane, limit_key, fairness_key)
  JOIN unnest($22::integer[], $23::text[], $24::text[], $25::text[], $26::bigint[], $27::text[], $28::integer[], $29::integer[], $30::text[], $31::integer[], $32::float8[], $33::boolean[], $34::integer[], $35::text[]) AS kind(number, tenant, type, queue, lane, lifecycle, policy, moves, state, version, lease_seconds, late_writes, max_attempts, needs)
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE (SELECT set_config('lock_timeout', coalesce($36::text, current_setting('lock_timeout')), TRUE)) IS NOT NULL
   AND NOT EXISTS (
           SELECT 1
             FROM unnest($37::bigint[], $38::text[], $39::integer[], $40::text[], $41::text[], $42::text[]) AS known(lane, lane_digest, policy, policy_digest, type, needs)
            WHERE NOT EXISTS (SELECT 1 FROM holdfast_lanes WHERE holdfast_lanes.id = known.lane AND holdfast_lanes.digest = known.lane_digest)
               OR NOT EXISTS (SELECT 1 FROM holdfast_policies p WHERE p.id = known.policy AND p.digest = known.policy_digest)
               OR EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = known.type AND t.needs IS NOT NULL AND TRUE))
   AND CASE WHEN fresh.idempotency_key IS NULL
            THEN TRUE
            ELSE (SELECT kept.job_id
                    FROM holdfast_kept_keys AS kept
                   WHERE kept.tenant = kind.tenant
                     AND kept.idempotency_key = fresh.idempotency_key) IS NULL
       END
    ON CONFLICT (tenant, idempotency_key) WHERE key_live DO NOTHING
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.pos, holdfast_jobs.lane, holdfast_jobs.key_lane, holdfast_jobs.needs, holdfast_jobs.run_at, holdfast_jobs.due
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 1, tenant, coalesce($2::timestamptz, statement_timestamp()), 'create', NULL, CASE WHEN version = 2 THEN 'created' ELSE state END, 0, 0, $1, NULL, NULL, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 2, tenant, coalesce($2::timestamptz, statement_timestamp()), 'accept', 'created', state, 0, 0, $1, NULL, NULL, pos FROM moved WHERE TRUE AND version = 2),
ready AS (INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) SELECT coalesce(key_lane, lane), priority, needs IS NOT NULL, id, run_at FROM moved WHERE due)
SELECT id, tenant, type, queue, lifecycle, version, came_from, state, reason, attempt, epoch, priority, updated_at, lease_expires_at, cancel_requested_at, claimed_at FROM moved;
