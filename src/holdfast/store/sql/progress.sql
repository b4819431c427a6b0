-- name: advance_jobs
-- note: progress
-- Progress renews the lease; a lifecycle without late writes rejects it once the lease has expired.
UPDATE holdfast_jobs
   SET step             = coalesce(told.step, holdfast_jobs.step),
       percent          = coalesce(told.percent, holdfast_jobs.percent),
       counters         = coalesce(told.counters, holdfast_jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN {now+told.eta_seconds} ELSE holdfast_jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, holdfast_jobs.checkpoint),
       progress_at      = {now},
       {next version},
       lease_expires_at = {now+holdfast_jobs.lease_seconds},
       updated_at       = {now}
  FROM {rows:told(id uuid, token uuid, step text, percent float8, counters text, eta_seconds float8, checkpoint text)}
 WHERE holdfast_jobs.id = told.id
   AND {running}
   AND holdfast_jobs.lease_token = told.token
   AND holdfast_jobs.lease_worker = :worker
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
RETURNING {moved}

-- name: held_counters
-- Read with the row lock that the report needs anyway.
SELECT holdfast_jobs.id, holdfast_jobs.counters
  FROM holdfast_jobs
  JOIN {rows:held(id uuid, token uuid)} ON holdfast_jobs.id = held.id
 WHERE {running}
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = :worker
 ORDER BY holdfast_jobs.id
{locked}

-- name: insert_parts_event
-- The event about reported parts; `number_event` has assigned its number.
INSERT INTO holdfast_events (job_id, seq, {pos column}tenant, at, verb, attempt, epoch, actor, worker_id, data)
SELECT holdfast_jobs.id, holdfast_jobs.version, {pos of said}holdfast_jobs.tenant, {now}, 'parts',
       holdfast_jobs.attempt, holdfast_jobs.epoch, 'worker', holdfast_jobs.lease_worker, said.data
  FROM {rows:said(id uuid, data text)}
  JOIN holdfast_jobs ON holdfast_jobs.id = said.id
RETURNING job_id

-- name: number_event
UPDATE holdfast_jobs SET {next version} WHERE id {in:ids uuid} RETURNING id

-- name: reopen_parts
-- Resets parts, to be done again from the beginning.
UPDATE holdfast_parts
   SET status       = 'pending',
       percent      = NULL,
       done         = NULL,
       error        = NULL,
       data         = NULL,
       started_at   = NULL,
       completed_at = NULL
  FROM {rows:part(job_id uuid, name text)}
 WHERE holdfast_parts.job_id = part.job_id
   AND holdfast_parts.name = part.name
RETURNING holdfast_parts.job_id

-- name: reset_parts
-- Resets parts after a failed execution: see `keep_completed_parts` and `discard_partial_parts`.
UPDATE holdfast_parts
   SET status       = 'pending',
       percent      = NULL,
       done         = NULL,
       error        = NULL,
       data         = NULL,
       started_at   = NULL,
       completed_at = NULL
  FROM {rows:failed(job_id uuid, completed boolean, partial boolean)}
 WHERE holdfast_parts.job_id = failed.job_id
   AND (failed.completed AND holdfast_parts.status = 'completed'
        OR failed.partial AND holdfast_parts.status IN ('in_progress', 'failed'))
RETURNING holdfast_parts.job_id

-- name: put_parts
-- A finished part stays finished until it is reopened, also in a later execution.
INSERT INTO holdfast_parts (job_id, name, tenant, epoch, place, status, percent, total, done, error, data, started_at, completed_at)
SELECT holdfast_jobs.id, part.name, holdfast_jobs.tenant, holdfast_jobs.epoch, part.place, part.status, part.percent,
       part.total, part.done, part.error,
       part.data, CASE WHEN part.status <> 'pending' THEN {now} END,
       CASE WHEN part.status IN ('completed', 'skipped') THEN {now} END
  FROM {rows:part(job_id uuid, place integer, name text, status text, percent float8, total integer, done integer, error text,
                  data text)}
  JOIN holdfast_jobs ON holdfast_jobs.id = part.job_id
 WHERE TRUE
    ON CONFLICT (job_id, name) DO UPDATE
   SET epoch        = excluded.epoch,
       status       = excluded.status,
       percent      = coalesce(excluded.percent, holdfast_parts.percent),
       total        = coalesce(excluded.total, holdfast_parts.total),
       done         = coalesce(excluded.done, holdfast_parts.done),
       error        = excluded.error,
       data         = coalesce(excluded.data, holdfast_parts.data),
       started_at   = coalesce(holdfast_parts.started_at, excluded.started_at),
       completed_at = excluded.completed_at
 WHERE holdfast_parts.status NOT IN ('completed', 'skipped')
RETURNING job_id, name
