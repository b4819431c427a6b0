WITH moved AS (
INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, idempotency_key, key_live, fingerprint,
    payload, tags, trace, partition_key, subject, redrive_of, root_id, parent_id, needs)
SELECT fresh.id, kind.tenant, kind.type, kind.queue, kind.lane, kind.lifecycle, kind.policy, kind.moves, kind.state,
       CASE WHEN kind.state = 'queued' THEN coalesce(fresh.run_at, (coalesce($1::timestamptz, statement_timestamp()) + (fresh.delay_seconds) * interval '1 second'), coalesce($1::timestamptz, statement_timestamp())) <= coalesce($1::timestamptz, statement_timestamp()) END,
       coalesce(fresh.priority, 0), kind.version, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log), coalesce(fresh.max_attempts, kind.max_attempts),
       coalesce(fresh.run_at, (coalesce($1::timestamptz, statement_timestamp()) + (fresh.delay_seconds) * interval '1 second'), coalesce($1::timestamptz, statement_timestamp())), coalesce($1::timestamptz, statement_timestamp()), coalesce($1::timestamptz, statement_timestamp()), kind.lease_seconds, kind.late_writes,
       fresh.idempotency_key, CASE WHEN fresh.idempotency_key IS NOT NULL THEN TRUE END, fresh.fingerprint,
       fresh.payload, fresh.tags, fresh.trace, fresh.partition_key, fresh.subject, fresh.redrive_of, fresh.root_id,
       fresh.parent_id, kind.needs
  FROM (SELECT $2::uuid AS id, $3::integer AS kind, $4::smallint AS priority, $5::integer AS max_attempts, $6::timestamptz AS run_at, $7::float8 AS delay_seconds, $8::text AS payload, $9::text AS idempotency_key, $10::text AS fingerprint, $11::text AS tags, $12::text AS trace, $13::text AS partition_key, $14::text AS subject, $15::uuid AS redrive_of, $16::uuid AS root_id, $17::uuid AS parent_id) AS fresh
  JOIN (SELECT $18::integer AS number, $19::text AS tenant, $20::text AS type, $21::text AS queue, $22::integer AS lane, $23::text AS lifecycle, $24::integer AS policy, $25::integer AS moves, $26::text AS state, $27::integer AS version, $28::float8 AS lease_seconds, $29::boolean AS late_writes, $30::integer AS max_attempts, $31::text AS needs) AS kind
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE (SELECT set_config('lock_timeout', coalesce($32::text, current_setting('lock_timeout')), TRUE)) IS NOT NULL
   AND NOT EXISTS (
           SELECT 1
             FROM (SELECT $33::integer AS lane, $34::text AS lane_digest, $35::integer AS policy, $36::text AS policy_digest, $37::text AS type, $38::text AS needs) AS known
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
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.version, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.lease_worker, holdfast_jobs.last_worker, holdfast_jobs.last_instance, holdfast_jobs.last_token, holdfast_jobs.step, holdfast_jobs.percent, holdfast_jobs.counters, holdfast_jobs.error, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 1, tenant, updated_at, 'create', NULL, CASE WHEN version = 2 THEN 'created' ELSE state END, attempt, epoch, $39, NULL, reason, pos FROM moved WHERE TRUE AND TRUE),
history1 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, pos) SELECT id, 2, tenant, updated_at, 'accept', 'created', state, attempt, epoch, $39, NULL, reason, pos FROM moved WHERE TRUE AND version = 2)
SELECT id, tenant, type, queue, lifecycle, came_from, state, reason, attempt, version FROM moved;
