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
SELECT listed.lane AS id, l.tenant, l.type, l.queue, l.limits, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky, {waits of lane} AS waits, {limited:l} AS limited, {any keyed} AS keyed,
       NULL AS lane, NULL AS bucket, NULL AS turn_at
  FROM listed
  JOIN holdfast_workers w ON w.id = :worker
  {head of:listed.lane}
  LEFT JOIN holdfast_lanes l ON l.id = listed.lane AND w.enabled AND {open to worker} AND {mine or plain head}
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant

-- name: open_key_lanes
-- The keyed lanes whose turn it is, of the lanes after `after` that have any: the first of each, `most` of them. The lanes
-- are the next ones, or the next that have the queues and types of this worker (`named`). A lane that the worker may not
-- claim from has no `type`; a keyed lane without claimable jobs has no `head`. `shut`: its bucket has no units or tokens
-- left.
WITH RECURSIVE {keyed:after},
listed AS (
    SELECT keyed.lane FROM keyed WHERE keyed.lane IS NOT NULL AND NOT :named
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE :named
               AND {any:queues l.queue text}
               AND {any:types l.type text}
               AND l.id > :after
               AND {has turns:l.id}
             ORDER BY l.id
             LIMIT {limit}) AS matching
)
SELECT {turn:key_lane} AS id, l.tenant, CASE WHEN head.id IS NULL OR {mine or plain head} THEN l.type END AS type, l.queue, l.limits, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky, {waits of lane} AS waits, TRUE AS limited, TRUE AS keyed,
       listed.lane, {turn:bucket} AS bucket, {turn:turn_at} AS turn_at, {turn:since} AS since, {full key:turn} AS shut
  FROM listed
  JOIN holdfast_workers w ON w.id = :worker
  LEFT JOIN holdfast_lanes l ON l.id = listed.lane AND w.enabled AND {open to worker}
  {turns of lane}
  {head of key lane}
  {limit of key:turn}
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant

-- name: lane_levels
-- The priorities of the claimable jobs of these lanes, one index probe each, and the oldest job of each priority.
WITH RECURSIVE {levels:asked}
SELECT levels.lane, levels.priority, head.id AS head, {seconds since:head.run_at} AS waited
  FROM levels
  {head of level}

-- name: claim_jobs
-- move: claim
-- gives: lease
-- From each lane in `wanted` its most urgent jobs, up to `most`, that no other transaction has locked. The constant limit is
-- for the planner, so that claims of every size share one prepared statement. If `run_at` of a claimable job is in the
-- future, the clock was set back. `unread`, `only`: see LaneScope.
WITH picked AS MATERIALIZED (
    SELECT {picked columns}
      FROM {rows:wanted(lane bigint, floor smallint, ceiling smallint, waits float8, most integer)}
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
       limited          = :limited,
       lease_expires_at = {now+lease_seconds},
       claimed_at       = {now},
       started_at       = coalesce(started_at, {now}),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = {now}
 WHERE id {in taken}
   AND state {from:claim}
RETURNING {moved}

-- name: jobs_elsewhere
-- Whether claims behind the job taken last from this lane would pass over jobs: more urgent ones, or those of other lanes.
SELECT (SELECT max(priority) FROM holdfast_ready WHERE lane = :lane AND priority > :priority) IS NOT NULL
       OR {other lanes:lane} AS found

-- name: drop_stale_ready
-- For lanes in which a claim found nothing. Only PostgreSQL has such rows.
SELECT {drop stale:lanes} AS dropped

-- name: claimable_jobs
-- The jobs that `claim_jobs` would claim from a lane, for job types with hooks.
SELECT holdfast_jobs.id, holdfast_jobs.type
  FROM holdfast_ready AS r
  JOIN holdfast_jobs ON holdfast_jobs.id = r.id
 WHERE r.lane = :lane
   AND r.priority BETWEEN :floor AND :ceiling
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
       limited          = :limited,
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
       EXISTS (SELECT 1 FROM {may be expired} AS holdfast_jobs
                WHERE {any:queues holdfast_jobs.queue text}
                  AND {mine or plain:holdfast_jobs}
                  AND lease_expires_at <= {now}) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker
