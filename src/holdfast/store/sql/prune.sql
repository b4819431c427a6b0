-- name: prunable_succeeded
-- Ids are in order of creation, and nothing finishes before it is created: below `bound` the primary key is enough,
-- and no complete has to keep an index for this.
SELECT id, tenant, finished_at, {now} AS now_at
  FROM jobs
 WHERE state = 'succeeded'
   AND finished_at <= {now-:keep_seconds}
   AND id < :bound
 ORDER BY id
 LIMIT {limit}
{skip_locked}

-- name: prunable_unhappy
SELECT id, tenant, finished_at, {now} AS now_at
  FROM jobs
 WHERE state = :state
   AND state <> 'succeeded'
   AND finished_at <= {now-:keep_seconds}
 ORDER BY finished_at
 LIMIT {limit}
{skip_locked}

-- name: listening_tenants
SELECT DISTINCT tenant FROM webhooks WHERE enabled ORDER BY tenant

-- name: unread_jobs
-- Of these jobs, those with events that the reader has not come to.
SELECT DISTINCT job_id
  FROM events
 WHERE job_id {in:ids uuid}
   AND (pos, job_id, seq) > (:pos, :job_id, :seq)

-- name: overdue_succeeded
SELECT count(*) AS jobs
  FROM (SELECT 1
          FROM jobs
         WHERE state = 'succeeded'
           AND finished_at <= {now-:keep_seconds}
           AND id < :bound
         ORDER BY id
         LIMIT {limit}) AS overdue

-- name: overdue_unhappy
SELECT count(*) AS jobs
  FROM (SELECT 1
          FROM jobs
         WHERE state = :state
           AND state <> 'succeeded'
           AND finished_at <= {now-:keep_seconds}
         ORDER BY finished_at
         LIMIT {limit}) AS overdue

-- name: overdue_deliveries
SELECT count(*) AS deliveries
  FROM (SELECT 1 FROM deliveries WHERE next_at <= {now-:seconds} ORDER BY next_at LIMIT {limit}) AS overdue

-- name: prune_jobs
DELETE FROM jobs
 WHERE id {in:ids uuid}
   AND finished_at IS NOT NULL
RETURNING id

-- name: prune_events
DELETE FROM events WHERE job_id {in:ids uuid} RETURNING job_id

-- name: prune_attempts
DELETE FROM attempts WHERE job_id {in:ids uuid} RETURNING job_id

-- name: prune_parts
DELETE FROM parts WHERE job_id {in:ids uuid} RETURNING job_id
