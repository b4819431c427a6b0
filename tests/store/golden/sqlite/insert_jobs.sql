INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, key_lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, idempotency_key, key_live, fingerprint,
    payload, tags, trace, partition_key, limit_key, fairness_key, subject, redrive_of, root_id, parent_id, needs)
SELECT fresh.id, kind.tenant, kind.type, kind.queue, kind.lane, fresh.key_lane, kind.lifecycle, kind.policy, kind.moves,
       kind.state, :actor,
       CASE WHEN kind.state = 'queued' THEN coalesce(fresh.run_at, (:now + CAST((fresh.delay_seconds) * 1000000 AS INTEGER)), :now) <= :now END,
       coalesce(fresh.priority, 0), kind.version, 0, coalesce(fresh.max_attempts, kind.max_attempts),
       coalesce(fresh.run_at, (:now + CAST((fresh.delay_seconds) * 1000000 AS INTEGER)), :now), :now, :now, kind.lease_seconds, kind.late_writes,
       fresh.idempotency_key, CASE WHEN fresh.idempotency_key IS NOT NULL THEN TRUE END, fresh.fingerprint,
       fresh.payload, fresh.tags, fresh.trace, fresh.partition_key, fresh.limit_key, fresh.fairness_key, fresh.subject,
       fresh.redrive_of, fresh.root_id, fresh.parent_id, kind.needs
  FROM (SELECT value->>0 AS id, value->>1 AS kind, value->>2 AS priority, value->>3 AS max_attempts, value->>4 AS run_at, value->>5 AS delay_seconds, value->>6 AS payload, value->>7 AS idempotency_key, value->>8 AS fingerprint, value->>9 AS tags, value->>10 AS trace, value->>11 AS partition_key, value->>12 AS subject, value->>13 AS redrive_of, value->>14 AS root_id, value->>15 AS parent_id, value->>16 AS key_lane, value->>17 AS limit_key, value->>18 AS fairness_key FROM json_each(:fresh)) AS fresh
  JOIN (SELECT value->>0 AS number, value->>1 AS tenant, value->>2 AS type, value->>3 AS queue, value->>4 AS lane, value->>5 AS lifecycle, value->>6 AS policy, value->>7 AS moves, value->>8 AS state, value->>9 AS version, value->>10 AS lease_seconds, value->>11 AS late_writes, value->>12 AS max_attempts, value->>13 AS needs FROM json_each(:kind)) AS kind
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE coalesce(:lock_timeout, '') IS NOT NULL
   AND NOT EXISTS (
           SELECT 1
             FROM (SELECT value->>0 AS lane, value->>1 AS lane_digest, value->>2 AS policy, value->>3 AS policy_digest, value->>4 AS type, value->>5 AS needs FROM json_each(:known)) AS known
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
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 1, tenant, updated_at, 'create', NULL, CASE WHEN version = 2 THEN 'created' ELSE state END, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 2, tenant, updated_at, 'accept', 'created', state, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND version = 2;
