-- name: insert_jobs
-- create
-- Values that many jobs of a batch share are passed once, as their `kind`. A job whose idempotency key is taken is not
-- inserted: the caller looks up the job that holds it. If another transaction has inserted the key and not committed yet,
-- this one waits, up to the lock timeout. Nothing is inserted if the cached id of a lane or policy now belongs to another
-- one (after a restore it may be another tenant's), or if a type needs hooks of an extension that the caller does not
-- have.
INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, key_lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, idempotency_key, key_live, fingerprint,
    payload, tags, trace, partition_key, limit_key, fairness_key, subject, redrive_of, root_id, parent_id, needs)
SELECT fresh.id, kind.tenant, kind.type, kind.queue, kind.lane, fresh.key_lane, kind.lifecycle, kind.policy, kind.moves,
       kind.state, :actor,
       CASE WHEN kind.state = 'queued' THEN coalesce(fresh.run_at, {now+fresh.delay_seconds}, {now}) <= {now} END,
       coalesce(fresh.priority, 0), kind.version, {pos}, coalesce(fresh.max_attempts, kind.max_attempts),
       coalesce(fresh.run_at, {now+fresh.delay_seconds}, {now}), {now}, {now}, kind.lease_seconds, kind.late_writes,
       fresh.idempotency_key, CASE WHEN fresh.idempotency_key IS NOT NULL THEN TRUE END, fresh.fingerprint,
       fresh.payload, fresh.tags, fresh.trace, fresh.partition_key, fresh.limit_key, fresh.fairness_key, fresh.subject,
       fresh.redrive_of, fresh.root_id, fresh.parent_id, kind.needs
  FROM {rows:fresh(id uuid, kind integer, priority smallint, max_attempts integer, run_at timestamptz, delay_seconds float8,
                   payload text, idempotency_key text, fingerprint text, tags text, trace text, partition_key text,
                   subject text, redrive_of uuid, root_id uuid, parent_id uuid, key_lane bigint, limit_key text,
                   fairness_key text)}
  JOIN {rows:kind(number integer, tenant text, type text, queue text, lane bigint, lifecycle text, policy integer,
                  moves integer, state text, version integer, lease_seconds float8, late_writes boolean,
                  max_attempts integer, needs text)}
    ON kind.number = coalesce(fresh.kind, 0)
 WHERE {lock_timeout}
   AND NOT EXISTS (
           SELECT 1
             FROM {rows:known(lane bigint, lane_digest text, policy integer, policy_digest text, type text, needs text)}
            WHERE NOT EXISTS (SELECT 1 FROM holdfast_lanes WHERE holdfast_lanes.id = known.lane AND holdfast_lanes.digest = known.lane_digest)
               OR NOT EXISTS (SELECT 1 FROM holdfast_policies p WHERE p.id = known.policy AND p.digest = known.policy_digest)
               OR EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = known.type AND t.needs IS NOT NULL AND {lacked}))
   AND CASE WHEN fresh.idempotency_key IS NULL
            THEN TRUE
            ELSE (SELECT kept.job_id
                    FROM holdfast_kept_keys AS kept
                   WHERE kept.tenant = kind.tenant
                     AND kept.idempotency_key = fresh.idempotency_key) IS NULL
       END
    ON CONFLICT (tenant, idempotency_key) WHERE key_live DO NOTHING
RETURNING {moved}

-- name: insert_plain_jobs
-- create
-- plain
-- `insert_jobs` for jobs of one kind that are claimable at once and have no optional column, so no key that may be taken.
-- It inserts all of them, or none for the same reasons as `insert_jobs`.
INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
SELECT fresh.id, :tenant, :type, :queue, CAST(:lane AS bigint), :lifecycle, CAST(:policy AS integer),
       CAST(:moves AS integer), {to:accept}, :actor, TRUE, 0, 1, {pos}, CAST(:max_attempts AS integer), {now}, {now}, {now},
       CAST(:lease_seconds AS float8), CAST(:late_writes AS boolean), fresh.payload
  FROM {rows:fresh(id uuid, payload text)}
 WHERE (SELECT digest FROM holdfast_lanes WHERE id = :lane) = :lane_digest
   AND (SELECT digest FROM holdfast_policies WHERE id = :policy) = :policy_digest
   AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = :type AND t.needs IS NOT NULL)
RETURNING {moved}

-- name: insert_plain_job
-- create
-- plain
-- values
-- `insert_plain_jobs` for one job, on SQLite: it fills a temporary table for INSERT ... SELECT into a table with triggers,
-- and another one for RETURNING. Where `insert_plain_jobs` would insert nothing, a column that must not be NULL is.
INSERT {or ignore} INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
VALUES (:id, :tenant, :type, :queue, (SELECT id FROM holdfast_lanes WHERE id = :lane AND digest = :lane_digest), :lifecycle,
        (SELECT id
           FROM holdfast_policies
          WHERE id = :policy
            AND digest = :policy_digest
            AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = :type AND t.needs IS NOT NULL)),
        :moves, {to:accept}, :actor, TRUE, 0, 1, {pos}, :max_attempts, {now}, {now}, {now}, :lease_seconds, :late_writes,
        :payload)
RETURNING {moved}

-- name: needs_of_types
SELECT name, needs FROM holdfast_job_types WHERE name {in:names text} AND needs IS NOT NULL

-- name: jobs_by_key
-- Each key is looked up separately: before the first ANALYZE, a join would read all keys instead.
SELECT asked.whose, asked.key, holdfast_jobs.id, holdfast_jobs.fingerprint, holdfast_jobs.state, holdfast_jobs.policy,
       holdfast_jobs.created_at, {now} AS now_at
  FROM {rows:asked(whose text, key text)}
  JOIN holdfast_jobs ON holdfast_jobs.id = (SELECT holder.id
                                              FROM holdfast_jobs AS holder
                                             WHERE holder.tenant = asked.whose
                                               AND holder.idempotency_key = asked.key
                                               AND holder.key_live)
UNION ALL
SELECT asked.whose, asked.key, kept.job_id, kept.fingerprint, kept.state, kept.policy, kept.created_at, {now}
  FROM {rows:asked(whose text, key text)}
  JOIN holdfast_kept_keys AS kept ON kept.job_id = (SELECT pruned.job_id
                                                      FROM holdfast_kept_keys AS pruned
                                                     WHERE pruned.tenant = asked.whose
                                                       AND pruned.idempotency_key = asked.key)
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs AS still WHERE still.id = kept.job_id)

-- name: free_key
-- The only change that a finished row allows. Of two concurrent creates one frees the key; both then try to insert.
UPDATE holdfast_jobs
   SET key_live = FALSE
 WHERE id = :id
   AND key_live
RETURNING id

-- name: drop_kept_key
-- `free_key` for a pruned job.
DELETE FROM holdfast_kept_keys WHERE job_id = :id RETURNING job_id

-- name: put_policy
INSERT INTO holdfast_policies (digest, body, moves, waits_for_offline, offline_seconds, no_progress_seconds,
                               max_runtime_seconds, cancel_grace_seconds)
VALUES (:digest, :body, :moves, :waits_for_offline, :offline_seconds, :no_progress_seconds, :max_runtime_seconds,
        :cancel_grace_seconds)
    ON CONFLICT (digest) DO NOTHING
RETURNING id

-- name: policy_id
SELECT id FROM holdfast_policies WHERE digest = :digest

-- name: policy_body
SELECT body, moves FROM holdfast_policies WHERE id = :id

-- name: tenant_id
SELECT id FROM holdfast_tenants WHERE name = :name

-- name: put_tenant
INSERT INTO holdfast_tenants (name) VALUES (:name) ON CONFLICT (name) DO NOTHING RETURNING id

-- name: put_lane
INSERT INTO holdfast_lanes (id, digest, tenant, queue, type, requires, prefers, limits, defer_seconds)
SELECT t.id * 4294967296 + {lane number}, :digest, t.name, :queue, :type, :requires, :prefers, :limits, :defer_seconds
  FROM holdfast_tenants t
 WHERE t.name = :tenant
    ON CONFLICT (digest) DO NOTHING
RETURNING id

-- name: lane_id
SELECT id FROM holdfast_lanes WHERE digest = :digest
