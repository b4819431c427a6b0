-- name: prunable_succeeded
-- Ids are in creation order, so `id < :bound` lets the primary key do, and `complete` has no other index to maintain. A job
-- whose idempotency key was copied to `holdfast_kept_keys` stays for `seen_seconds` more: a create that began earlier
-- does not see the copy, but finds the job.
SELECT id, tenant, type, state, policy, created_at, finished_at, {now} AS now_at, key_live,
       EXISTS (SELECT 1 FROM holdfast_kept_keys WHERE holdfast_kept_keys.job_id = holdfast_jobs.id) AS kept
  FROM holdfast_jobs
 WHERE state = 'succeeded'
   AND finished_at <= {now-:keep_seconds}
   AND id < :bound
   AND NOT tenant {in:besides text}
   AND {mine or freed}
   AND {not held back:prune}
   AND CASE WHEN key_live
            THEN coalesce((SELECT max(kept_at) FROM holdfast_kept_keys WHERE holdfast_kept_keys.job_id = holdfast_jobs.id) <= {now-:seen_seconds}, TRUE)
            ELSE TRUE
       END
 ORDER BY id
 LIMIT {limit}
{skip_locked}

-- name: prunable_unhappy
SELECT id, tenant, type, state, policy, created_at, finished_at, {now} AS now_at, key_live,
       EXISTS (SELECT 1 FROM holdfast_kept_keys WHERE holdfast_kept_keys.job_id = holdfast_jobs.id) AS kept
  FROM holdfast_jobs
 WHERE parked = :state
   AND parked_at <= {now-:keep_seconds}
   AND NOT tenant {in:besides text}
   AND {mine or freed}
   AND {not held back:prune}
   AND CASE WHEN key_live
            THEN coalesce((SELECT max(kept_at) FROM holdfast_kept_keys WHERE holdfast_kept_keys.job_id = holdfast_jobs.id) <= {now-:seen_seconds}, TRUE)
            ELSE TRUE
       END
 ORDER BY parked_at
 LIMIT {limit}
{skip_locked}

-- name: listening_tenants
SELECT DISTINCT tenant FROM holdfast_webhooks WHERE enabled ORDER BY tenant

-- name: unread_jobs
-- Those of the given jobs with events that the reader has not read yet.
SELECT DISTINCT job_id
  FROM holdfast_events
 WHERE job_id {in:ids uuid}
   AND (pos, job_id, seq) > (:pos, :job_id, :seq)

-- name: overdue_succeeded
SELECT count(*) AS jobs
  FROM (SELECT 1
          FROM holdfast_jobs
         WHERE state = 'succeeded'
           AND finished_at <= {now-:keep_seconds}
           AND id < :bound
         ORDER BY id
         LIMIT {limit}) AS overdue

-- name: overdue_unhappy
SELECT count(*) AS jobs
  FROM (SELECT 1
          FROM holdfast_jobs
         WHERE parked = :state
           AND parked_at <= {now-:keep_seconds}
         ORDER BY parked_at
         LIMIT {limit}) AS overdue

-- name: overdue_deliveries
SELECT count(*) AS deliveries
  FROM (SELECT 1 FROM holdfast_deliveries WHERE next_at <= {now-:seconds} ORDER BY next_at LIMIT {limit}) AS overdue

-- name: keep_keys
INSERT INTO holdfast_kept_keys (tenant, idempotency_key, fingerprint, job_id, state, policy, created_at, expires_at, kept_at)
SELECT holdfast_jobs.tenant, holdfast_jobs.idempotency_key, holdfast_jobs.fingerprint, holdfast_jobs.id,
       holdfast_jobs.state, holdfast_jobs.policy, holdfast_jobs.created_at, held.expires_at,
       {now}
  FROM {rows:held(id uuid, expires_at timestamptz)}
  JOIN holdfast_jobs ON holdfast_jobs.id = held.id
 WHERE holdfast_jobs.key_live
   AND holdfast_jobs.finished_at IS NOT NULL
    ON CONFLICT (tenant, idempotency_key) DO NOTHING
RETURNING job_id

-- name: prune_kept_keys
WITH picked AS MATERIALIZED (
    SELECT job_id AS id
      FROM holdfast_kept_keys
     WHERE expires_at <= {now}
     ORDER BY expires_at
     LIMIT {limit}
    {skip_locked}
)
DELETE FROM holdfast_kept_keys WHERE job_id {in picked} RETURNING job_id

-- name: pruned_jobs
-- Those of the given missing jobs that were pruned: an idempotency key or the record of an attempt is left.
SELECT job_id, tenant FROM holdfast_kept_keys WHERE job_id {in:ids uuid}
 UNION
SELECT job_id, tenant FROM holdfast_attempts WHERE job_id {in:ids uuid}

-- name: prune_jobs
DELETE FROM holdfast_jobs
 WHERE id {in:ids uuid}
   AND finished_at IS NOT NULL
   AND {mine or freed}
RETURNING id

-- name: prune_events
DELETE FROM holdfast_events WHERE job_id {in:ids uuid} RETURNING pos

-- name: note_pruned
UPDATE holdfast_event_log SET pruned = :pos WHERE pruned < :pos RETURNING pruned

-- name: keep_attempts
-- The record of an attempt (worker, times, outcome) is kept, for ever unless a setting says otherwise; its error is
-- deleted with the job.
INSERT INTO holdfast_kept_attempts (job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at,
                                    outcome, to_state, reason)
SELECT job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason
  FROM holdfast_attempts
 WHERE job_id {in:ids uuid}
    ON CONFLICT DO NOTHING
RETURNING job_id

-- name: old_attempts
SELECT job_id
  FROM holdfast_kept_attempts
 WHERE ended_at <= {now-:keep_seconds}
 ORDER BY ended_at
 LIMIT {limit}
{skip_locked}

-- name: prune_attempts
DELETE FROM holdfast_kept_attempts
 WHERE job_id {in:ids uuid}
   AND ended_at <= {now-:keep_seconds}
RETURNING job_id

-- name: prune_parts
DELETE FROM holdfast_parts WHERE job_id {in:ids uuid} RETURNING job_id
