-- name: note_hook_failure
-- Retried with exponential backoff: after 1 s, 2 s, 4 s and so on, up to five minutes.
INSERT INTO holdfast_hook_failures (job_id, verb, extension, failures, error, next_at)
VALUES (:job_id, :verb, :extension, 1, :error, {now+1})
    ON CONFLICT (job_id, verb) DO UPDATE
   SET extension = excluded.extension,
       failures  = holdfast_hook_failures.failures + 1,
       error     = excluded.error,
       next_at   = {now+CASE WHEN holdfast_hook_failures.failures < 8 THEN 1 << holdfast_hook_failures.failures ELSE 300 END}
RETURNING failures, next_at

-- name: note_deferred
-- A guard has deferred these moves. It answered, so `failures` is reset.
INSERT INTO holdfast_hook_failures (job_id, verb, extension, failures, error, next_at)
SELECT told.id, :verb, told.extension, 0, told.reason, {now+told.seconds}
  FROM {rows:told(id uuid, extension text, reason text, seconds float8)}
 WHERE TRUE
    ON CONFLICT (job_id, verb) DO UPDATE
   SET extension = excluded.extension,
       failures  = 0,
       error     = excluded.error,
       next_at   = excluded.next_at
RETURNING job_id

-- name: clear_hook_failures
DELETE FROM holdfast_hook_failures WHERE job_id {in:ids uuid} AND verb = :verb RETURNING job_id

-- name: hook_failures
SELECT verb, extension, failures, error, next_at FROM holdfast_hook_failures WHERE job_id = :id ORDER BY verb

-- name: hooked_jobs
-- The jobs as hooks get them. `failed`: a hook has failed or deferred this move of the job before.
SELECT {job},
       EXISTS (SELECT 1 FROM holdfast_hook_failures AS known WHERE known.job_id = holdfast_jobs.id AND known.verb = :verb) AS failed
  FROM holdfast_jobs
 WHERE id {in:ids uuid}
 ORDER BY id

-- name: prune_hook_failures
DELETE FROM holdfast_hook_failures WHERE job_id {in:ids uuid} RETURNING job_id

-- name: see_extensions
-- Records the extensions of a process that does maintenance.
INSERT INTO holdfast_extensions (name, seen_at)
SELECT seen.name, {now} FROM {rows:seen(name text)} WHERE TRUE
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at
RETURNING name
