-- name: prunable_succeeded
-- Ids are in order of creation, and nothing finishes before it is created: below `bound` the primary key is enough,
-- and no complete has to keep an index for this.
SELECT id
  FROM jobs
 WHERE state = 'succeeded'
   AND finished_at <= {now-:keep_seconds}
   AND id < :bound
 ORDER BY id
 LIMIT {limit}
{skip_locked}

-- name: prunable_unhappy
SELECT id
  FROM jobs
 WHERE state = :state
   AND state <> 'succeeded'
   AND finished_at <= {now-:keep_seconds}
 ORDER BY finished_at
 LIMIT {limit}
{skip_locked}

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
