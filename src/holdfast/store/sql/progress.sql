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

-- name: put_parts
-- A part that is finished stays finished: nobody changes it any more, a later execution neither.
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
