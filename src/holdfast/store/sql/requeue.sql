-- name: mark_due_jobs
-- Makes delayed jobs claimable. The state does not change, so there is no event.
WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = :parked
       AND parked_at <= {now}
       AND (state = 'queued' OR moves & {bit:retrying>running} <> 0)
       AND attempt < max_attempts
       AND NOT (state = 'queued' AND coalesce(reason, '') = 'waiting_for_children')
     ORDER BY parked_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET due = TRUE
 WHERE id {in ripe}
RETURNING id, queue, type, priority

-- name: requeue_due
-- move: requeue
-- For lifecycles in which a retry returns to `queued` before it is claimed.
WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = 'retrying'
       AND parked_at <= {now}
       AND moves & {bit:retrying>running} = 0
       AND attempt < max_attempts
       AND {mine}
     ORDER BY parked_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:requeue},
       due        = TRUE,
       {next version},
       updated_at = {now}
 WHERE id {in ripe}
   AND state {from:requeue}
RETURNING {moved}

-- name: requeue_jobs
-- move: requeue
-- An operator skips the backoff.
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:requeue},
       reason     = :reason,
       due        = TRUE,
       run_at     = {now},
       {next version},
       updated_at = {now}
 WHERE id {in:ids uuid}
   AND state {from:requeue}
   AND {mine}
RETURNING {moved}

-- name: due_retries
-- The jobs that `requeue_due` would move, for job types with hooks.
SELECT id, type
  FROM holdfast_jobs
 WHERE parked = 'retrying'
   AND parked_at <= {now}
   AND moves & {bit:retrying>running} = 0
   AND attempt < max_attempts
   AND {mine}
 ORDER BY parked_at
 LIMIT {limit}
{skip_locked}

-- name: requeue_ripe
-- move: requeue
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:requeue},
       due        = TRUE,
       {next version},
       updated_at = {now}
 WHERE id {in:ids uuid}
   AND state {from:requeue}
   AND {mine}
RETURNING {moved}
