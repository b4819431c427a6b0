-- name: open_lanes
-- Lanes with claimable jobs after lane `after`, in the order of their ids: the next ones, or the first of each tenant
-- (`by_tenant`), or the next that have the queues and types of this worker (`named`). A lane that the worker may not claim
-- from now has no `type`. `waits` is how long a job must have waited before this worker may claim it: above 0 only while
-- an idle worker that the job prefers is available.
WITH RECURSIVE {walk:after},
listed AS (
    SELECT walk.lane FROM walk WHERE walk.lane IS NOT NULL AND NOT :named
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE :named
               AND {any:queues l.queue text}
               AND {any:types l.type text}
               AND l.id > :after
             ORDER BY l.id
             LIMIT {limit}) AS matching
)
SELECT listed.lane AS id, l.tenant, l.type, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky,
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
                            AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id))
            THEN l.defer_seconds
            ELSE 0
       END AS waits
  FROM listed
  JOIN holdfast_workers w ON w.id = :worker
  {head of:listed.lane}
  LEFT JOIN holdfast_lanes l
    ON l.id = listed.lane
   AND w.enabled
   AND {any:queues l.queue text}
   AND {any:types l.type text}
   AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:w.tenants} AS t))
   AND NOT EXISTS (SELECT 1 FROM {items:l.requires} AS r WHERE r.value NOT IN (SELECT value FROM {items:w.offers} AS o))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
   AND {mine or plain head}
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant

-- name: claim_jobs
-- move: claim
-- gives: lease
-- From each lane in `wanted` its most urgent jobs, up to `most`, that no other transaction has locked. The constant limit is
-- for the planner, so that claims of every size share one prepared statement. If `run_at` of a claimable job is in the
-- future, the clock was set back. `only`: see OnlyLanes.
WITH picked AS MATERIALIZED (
    SELECT {picked columns}
      FROM {rows:wanted(lane bigint, floor smallint, waits float8, most integer)}
      {best of lane}
){taken}
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
 WHERE id {in taken}
   AND state {from:claim}
   AND due
   AND {mine}
RETURNING {moved}

-- name: drop_stale_ready
-- For lanes in which a claim found nothing. Only PostgreSQL has such rows.
SELECT {drop stale:lanes} AS dropped

-- name: claimable_jobs
-- The jobs that `claim_jobs` would claim from a lane, for job types with hooks.
SELECT holdfast_jobs.id, holdfast_jobs.type
  FROM holdfast_ready AS r
  JOIN holdfast_jobs ON holdfast_jobs.id = r.id
 WHERE r.lane = :lane
   AND r.priority >= :floor
   AND (r.run_at <= {now-:waits} OR r.run_at > {now+5})
   AND holdfast_jobs.due
   AND holdfast_jobs.attempt < holdfast_jobs.max_attempts
   AND {mine}
 ORDER BY r.priority DESC, r.id
 LIMIT :most
{skip_locked of jobs}

-- name: claim_found
-- move: claim
-- gives: lease
-- The caller has locked the rows and checked that they may be claimed.
{found:ids}UPDATE holdfast_jobs
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
-- A guard has deferred these jobs, or a hook has failed: until `run_at` they are not claimable. The state does not change,
-- so there is no event.
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
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= {now} AND {mine or plain:holdfast_jobs}) AS ripe,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE {any:queues holdfast_jobs.queue text}
                  AND {mine or plain:holdfast_jobs}
                  AND lease_expires_at <= {now}) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker
