INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, key_lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, idempotency_key, key_live, fingerprint,
    payload, tags, trace, partition_key, limit_key, fairness_key, subject, redrive_of, root_id, parent_id, needs)
SELECT fresh.id, kind.tenant, kind.type, kind.queue, kind.lane, fresh.key_lane, kind.lifecycle, kind.policy, kind.moves,
       kind.state, ?,
       CASE WHEN kind.state = 'queued' THEN coalesce(fresh.run_at, (? + CAST((fresh.delay_seconds) * 1000000 AS INTEGER)), ?) <= ? END,
       coalesce(fresh.priority, 0), kind.version, 0, coalesce(fresh.max_attempts, kind.max_attempts),
       coalesce(fresh.run_at, (? + CAST((fresh.delay_seconds) * 1000000 AS INTEGER)), ?), ?, ?, kind.lease_seconds, kind.late_writes,
       fresh.idempotency_key, CASE WHEN fresh.idempotency_key IS NOT NULL THEN TRUE END, fresh.fingerprint,
       fresh.payload, fresh.tags, fresh.trace, fresh.partition_key, fresh.limit_key, fresh.fairness_key, fresh.subject,
       fresh.redrive_of, fresh.root_id, fresh.parent_id, kind.needs
  FROM (SELECT ? AS id, ? AS kind, ? AS priority, ? AS max_attempts, ? AS run_at, ? AS delay_seconds, ? AS payload, ? AS idempotency_key, ? AS fingerprint, ? AS tags, ? AS trace, ? AS partition_key, ? AS subject, ? AS redrive_of, ? AS root_id, ? AS parent_id, ? AS key_lane, ? AS limit_key, ? AS fairness_key) AS fresh
  JOIN (SELECT ? AS number, ? AS tenant, ? AS type, ? AS queue, ? AS lane, ? AS lifecycle, ? AS policy, ? AS moves, ? AS state, ? AS version, ? AS lease_seconds, ? AS late_writes, ? AS max_attempts, ? AS needs) AS kind
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE coalesce(?, '') IS NOT NULL
   AND NOT EXISTS (
           SELECT 1
             FROM (SELECT ? AS lane, ? AS lane_digest, ? AS policy, ? AS policy_digest, ? AS type, ? AS needs) AS known
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
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.version, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 1, tenant, updated_at, 'create', NULL, CASE WHEN version = 2 THEN 'created' ELSE state END, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 2, tenant, updated_at, 'accept', 'created', state, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND version = 2;
