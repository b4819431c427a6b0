-- name: advance_jobs
-- note: progress
-- Progress extends the lease; a lifecycle without late writes refuses it once the lease has run out.
UPDATE jobs
   SET step             = coalesce(told.step, jobs.step),
       percent          = coalesce(told.percent, jobs.percent),
       counters         = coalesce(told.counters, jobs.counters),
       eta_at           = CASE WHEN told.eta_seconds IS NOT NULL THEN {now+told.eta_seconds} ELSE jobs.eta_at END,
       checkpoint       = coalesce(told.checkpoint, jobs.checkpoint),
       progress_at      = {now},
       {next version},
       lease_expires_at = {now+jobs.lease_seconds},
       updated_at       = {now}
  FROM {rows:told(id uuid, token uuid, step text, percent float8, counters text, eta_seconds float8, checkpoint text)}
 WHERE jobs.id = told.id
   AND {running}
   AND jobs.lease_token = told.token
   AND jobs.lease_worker = :worker
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
RETURNING {moved}

-- name: held_counters
-- Read under the lock that the report will need anyway.
SELECT jobs.id, jobs.counters
  FROM jobs
  JOIN {rows:held(id uuid, token uuid)} ON jobs.id = held.id
 WHERE {running}
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = :worker
 ORDER BY jobs.id
{locked}

-- name: tell_parts
-- The line about them in the log; its number was counted by `number_line`.
INSERT INTO events (job_id, seq, {pos column}tenant, at, verb, attempt, epoch, actor, worker_id, data)
SELECT jobs.id, jobs.version, {pos of said}jobs.tenant, {now}, 'parts', jobs.attempt, jobs.epoch, 'worker', jobs.lease_worker, said.data
  FROM {rows:said(id uuid, data text)}
  JOIN jobs ON jobs.id = said.id
RETURNING job_id

-- name: number_line
UPDATE jobs SET {next version} WHERE id {in:ids uuid} RETURNING id

-- name: reopen_parts
-- To be done again, from the beginning.
UPDATE parts
   SET status       = 'pending',
       percent      = NULL,
       done         = NULL,
       error        = NULL,
       data         = NULL,
       started_at   = NULL,
       completed_at = NULL
  FROM {rows:part(job_id uuid, name text)}
 WHERE parts.job_id = part.job_id
   AND parts.name = part.name
RETURNING parts.job_id

-- name: reset_parts
-- A failed execution leaves these behind: see `keep_completed_parts` and `discard_partial_parts`.
UPDATE parts
   SET status       = 'pending',
       percent      = NULL,
       done         = NULL,
       error        = NULL,
       data         = NULL,
       started_at   = NULL,
       completed_at = NULL
  FROM {rows:failed(job_id uuid, completed boolean, partial boolean)}
 WHERE parts.job_id = failed.job_id
   AND (failed.completed AND parts.status = 'completed'
        OR failed.partial AND parts.status IN ('in_progress', 'failed'))
RETURNING parts.job_id

-- name: put_parts
-- A part that is finished stays finished until it is reopened, also for a later execution.
INSERT INTO parts (job_id, name, tenant, epoch, place, status, percent, total, done, error, data, started_at, completed_at)
SELECT jobs.id, part.name, jobs.tenant, jobs.epoch, part.place, part.status, part.percent, part.total, part.done, part.error,
       part.data, CASE WHEN part.status <> 'pending' THEN {now} END,
       CASE WHEN part.status IN ('completed', 'skipped') THEN {now} END
  FROM {rows:part(job_id uuid, place integer, name text, status text, percent float8, total integer, done integer, error text,
                  data text)}
  JOIN jobs ON jobs.id = part.job_id
 WHERE TRUE
    ON CONFLICT (job_id, name) DO UPDATE
   SET epoch        = excluded.epoch,
       status       = excluded.status,
       percent      = coalesce(excluded.percent, parts.percent),
       total        = coalesce(excluded.total, parts.total),
       done         = coalesce(excluded.done, parts.done),
       error        = excluded.error,
       data         = coalesce(excluded.data, parts.data),
       started_at   = coalesce(parts.started_at, excluded.started_at),
       completed_at = excluded.completed_at
 WHERE parts.status NOT IN ('completed', 'skipped')
RETURNING job_id, name
