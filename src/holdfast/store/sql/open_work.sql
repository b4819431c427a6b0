-- name: open_work
-- The lanes with claimable jobs, among the queues and types that long polls of this server wait for.
SELECT l.tenant, l.queue, l.type, l.requires, l.prefers,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs r WHERE r.due AND r.lane = l.id LIMIT 100) AS first) AS ready
  FROM holdfast_lanes l
 WHERE (SELECT {mine or plain:j} FROM holdfast_jobs j WHERE j.due AND j.lane = l.id LIMIT 1)
   AND {any:queues l.queue text}
   AND {any:types l.type text}
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
 LIMIT {limit}

-- name: next_open_work
-- When the next delayed job becomes due, and whether a lease has expired.
SELECT {now} AS seen_at,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND {mine or plain:holdfast_jobs} ORDER BY run_at LIMIT 1) AS next_at,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE state = 'running' AND {mine or plain:holdfast_jobs} AND lease_expires_at <= {now}) AS lost

-- name: enabled_workers
SELECT id, tenants, offers FROM holdfast_workers WHERE id {in:ids uuid} AND enabled

-- name: policies_of_jobs
SELECT id, policy FROM holdfast_jobs WHERE id {in:ids uuid}
