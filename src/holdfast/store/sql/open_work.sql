-- name: open_work
-- The lanes with claimable jobs, among the queues and types that long polls of this server wait for. If there are more
-- lanes than the limit, those queues and types are looked up as well.
WITH RECURSIVE {walk:zero},
listed AS (
    SELECT walk.lane FROM walk WHERE walk.lane IS NOT NULL
     UNION
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE EXISTS (SELECT 1 FROM walk WHERE walk.nth = {limit} AND walk.lane IS NOT NULL)
               AND {any:queues l.queue text}
               AND {any:types l.type text}
             ORDER BY l.id
             LIMIT {limit}) AS matching
)
SELECT l.tenant, l.queue, l.type, l.requires, l.prefers,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_ready r WHERE r.lane = l.id LIMIT 100) AS first) AS ready
  FROM listed
  {head of:listed.lane}
  JOIN holdfast_lanes l ON l.id = listed.lane
 WHERE {mine or plain head}
   AND {any:queues l.queue text}
   AND {any:types l.type text}
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)

-- name: next_open_work
-- When the next delayed job becomes due, and whether a lease has expired.
SELECT {now} AS seen_at,
       {next due} AS next_at,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs WHERE {mine or plain:holdfast_jobs} AND lease_expires_at <= {now}) AS lost

-- name: enabled_workers
SELECT id, tenants, offers FROM holdfast_workers WHERE id {in:ids uuid} AND enabled

-- name: policies_of_jobs
SELECT id, policy FROM holdfast_jobs WHERE id {in:ids uuid}
