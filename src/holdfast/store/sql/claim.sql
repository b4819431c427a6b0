-- name: open_lanes
-- The lanes that this worker may claim from now, ordered by the priority of their head. `waits` is how long a job must
-- have waited before this worker may claim it: above 0 only while an idle worker that the job prefers is available.
SELECT l.id, l.type, head.priority, head.id AS head, head.needs IS NOT NULL AS hooked,
       CASE WHEN EXISTS (SELECT 1 FROM {items:l.prefers} AS p WHERE p.value NOT IN (SELECT value FROM {items:w.offers} AS o))
             AND EXISTS (SELECT 1
                           FROM holdfast_workers other
                          WHERE other.enabled
                            AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:other.tenants} AS t))
                            AND other.last_heartbeat_at >= {now-2 * other.heartbeat_seconds}
                            AND other.liveness <> 'offline'
                            AND NOT EXISTS (SELECT 1 FROM {items:l.prefers} AS p
                                             WHERE p.value NOT IN (SELECT value FROM {items:other.offers} AS o))
                            AND NOT EXISTS (SELECT 1 FROM {items:l.requires} AS r
                                             WHERE r.value NOT IN (SELECT value FROM {items:other.offers} AS o))
                            AND NOT EXISTS (SELECT 1 FROM holdfast_jobs held
                                             WHERE held.state = 'running' AND held.lease_worker = other.id))
            THEN l.defer_seconds
            ELSE 0
       END AS waits
  FROM holdfast_workers w
  CROSS JOIN holdfast_lanes l
  JOIN holdfast_jobs head ON head.id = (SELECT j.id
                                          FROM holdfast_jobs j
                                         WHERE j.due
                                           AND j.lane = l.id
                                         ORDER BY j.priority DESC, j.id
                                         LIMIT 1)
 WHERE w.id = :worker
   AND {mine or plain:head}
   AND w.enabled
   AND {any:queues l.queue text}
   AND {any:types l.type text}
   AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:w.tenants} AS t))
   AND NOT EXISTS (SELECT 1 FROM {items:l.requires} AS r WHERE r.value NOT IN (SELECT value FROM {items:w.offers} AS o))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
 ORDER BY head.priority DESC, head.id
 LIMIT {limit}

-- name: claim_jobs
-- move: claim
-- gives: lease
-- The CTE is an optimization fence: without it the planner may run the LIMIT more than once. The inner LIMIT is for the
-- planner and constant, so that claims of every size share one prepared statement; the outer one stops after :most rows,
-- and no further row is locked. If `run_at` of a due job is in the future, the clock was set back.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM (SELECT id
              FROM holdfast_jobs
             WHERE due
               AND lane = :lane
               AND priority >= :floor
               AND (run_at <= {now-:waits} OR run_at > {now+5})
               AND attempt < max_attempts
               AND {mine}
             ORDER BY priority DESC, id
             LIMIT {limit}
            {skip_locked}) AS best
     LIMIT :most
)
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = {to:claim},
       reason           = NULL,
       due              = NULL,
       {next version},
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = :worker,
       lease_instance   = :instance,
       lease_token      = {token},
       lease_expires_at = {now+lease_seconds},
       claimed_at       = {now},
       started_at       = coalesce(started_at, {now}),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = {now}
 WHERE id {in picked}
   AND state {from:claim}
RETURNING {moved}

-- name: claimable_jobs
-- The jobs that `claim_jobs` would claim from a lane, for job types with hooks.
SELECT id, type
  FROM holdfast_jobs
 WHERE due
   AND lane = :lane
   AND priority >= :floor
   AND (run_at <= {now-:waits} OR run_at > {now+5})
   AND attempt < max_attempts
   AND {mine}
 ORDER BY priority DESC, id
 LIMIT :most
{skip_locked}

-- name: claim_found
-- move: claim
-- gives: lease
-- The caller has locked the rows and checked that they may be claimed.
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = {to:claim},
       reason           = NULL,
       due              = NULL,
       {next version},
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = :worker,
       lease_instance   = :instance,
       lease_token      = {token},
       lease_expires_at = {now+lease_seconds},
       claimed_at       = {now},
       started_at       = coalesce(started_at, {now}),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = {now}
 WHERE id {in:ids uuid}
   AND state {from:claim}
   AND {mine}
RETURNING {moved}

-- name: defer_jobs
-- A guard has deferred these jobs, or a hook has failed: until `run_at` they are not in the claim index. The state does
-- not change, so there is no event.
UPDATE holdfast_jobs
   SET due    = FALSE,
       run_at = {now+deferred.seconds},
       reason = CASE WHEN holdfast_jobs.state = 'queued' THEN deferred.reason ELSE holdfast_jobs.reason END
  FROM {rows:deferred(id uuid, seconds float8, reason text)}
 WHERE holdfast_jobs.id = deferred.id
   AND holdfast_jobs.due IS NOT NULL
   AND {mine}
RETURNING holdfast_jobs.id

-- name: overdue
-- For a claim that found too few jobs: is a delayed job due, has a lease expired, is the worker enabled?
SELECT w.enabled,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND {mine or plain:holdfast_jobs} ORDER BY run_at LIMIT 1) <= {now} AS ripe,
       EXISTS (SELECT 1 FROM holdfast_jobs
                WHERE state = 'running'
                  AND {any:queues holdfast_jobs.queue text}
                  AND {mine or plain:holdfast_jobs}
                  AND lease_expires_at <= {now}) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker
