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
   AND {open lane}

-- name: open_key_work
-- The same for lanes that have keyed lanes.
WITH RECURSIVE {keyed:zero},
{listed:keys}
SELECT l.tenant, l.queue, l.type, l.requires, l.prefers, {turns:l.id} AS ready
  FROM listed
  JOIN holdfast_lanes l ON l.id = listed.lane
 WHERE {open lane}
   AND {has turns:l.id}

-- name: next_open_work
-- When the next delayed job becomes due or a limit has tokens again, and whether a lease has expired.
WITH RECURSIVE {walk:zero},
{keyed:zero}
SELECT {now} AS seen_at,
       {next due} AS next_at,
       {next turn} AS next_turn_at,
       {next tokens} AS tokens_in,
       EXISTS (SELECT 1 FROM {may be expired} AS holdfast_jobs WHERE {mine or plain:holdfast_jobs} AND lease_expires_at <= {now}) AS lost

-- name: enabled_workers
SELECT id, tenants, offers FROM holdfast_workers WHERE id {in:ids uuid} AND enabled

-- name: policies_of_jobs
SELECT id, policy FROM holdfast_jobs WHERE id {in:ids uuid}
