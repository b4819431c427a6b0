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
  FROM (SELECT $3::uuid AS id, $4::integer AS kind, $5::smallint AS priority, $6::integer AS max_attempts, $7::timestamptz AS run_at, $8::float8 AS delay_seconds, $9::text AS payload, $10::text AS idempotency_key, $11::text AS fingerprint, $12::text AS tags, $13::text AS trace, $14::text AS partition_key, $15::text AS subject, $16::uuid AS redrive_of, $17::uuid AS root_id, $18::uuid AS parent_id, $19::bigint AS key_lane, $20::text AS limit_key, $21::text AS fairness_key) AS fresh
  JOIN (SELECT $22::integer AS number, $23::text AS tenant, $24::text AS type, $25::text AS queue, $26::bigint AS lane, $27::text AS lifecycle, $28::integer AS policy, $29::integer AS moves, $30::text AS state, $31::integer AS version, $32::float8 AS lease_seconds, $33::boolean AS late_writes, $34::integer AS max_attempts, $35::text AS needs) AS kind
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE (SELECT set_config('lock_timeout', coalesce($36::text, current_setting('lock_timeout')), TRUE)) IS NOT NULL
   AND NOT EXISTS (
           SELECT 1
             FROM (SELECT $37::bigint AS lane, $38::text AS lane_digest, $39::integer AS policy, $40::text AS policy_digest, $41::text AS type, $42::text AS needs) AS known
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
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.version, holdfast_jobs.pos, holdfast_jobs.lane, holdfast_jobs.key_lane, holdfast_jobs.priority, holdfast_jobs.needs, holdfast_jobs.run_at, holdfast_jobs.due
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 1, tenant, coalesce($2::timestamptz, statement_timestamp()), 'create', NULL, CASE WHEN version = 2 THEN 'created' ELSE state END, 0, 0, $1, NULL, NULL, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 2, tenant, coalesce($2::timestamptz, statement_timestamp()), 'accept', 'created', state, 0, 0, $1, NULL, NULL, pos FROM moved WHERE TRUE AND version = 2),
ready AS (INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at) SELECT coalesce(key_lane, lane), priority, needs IS NOT NULL, id, run_at FROM moved WHERE due)
SELECT id, tenant, type, queue, lifecycle, came_from, state, reason, attempt, version FROM moved;
