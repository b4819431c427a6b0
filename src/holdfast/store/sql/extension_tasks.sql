-- name: maintenance
SELECT extension, task, due_at, ran_at, failures, error, {now} AS now_at FROM holdfast_maintenance ORDER BY extension, task

-- name: add_tasks
INSERT INTO holdfast_maintenance (extension, task, due_at)
SELECT new.extension, new.task, {now} FROM {rows:new(extension text, task text)} WHERE TRUE
    ON CONFLICT (extension, task) DO NOTHING
RETURNING task

-- name: forget_tasks
DELETE FROM holdfast_maintenance WHERE extension {in:names text} AND due_at <= {now-:seconds} RETURNING task

-- name: take_task
-- The process that gets the task holds the row lock until its transaction ends; the others skip it. A `due_at` beyond
-- `most` means that the interval was longer before, or that the clock was set back.
WITH free AS (
    SELECT task
      FROM holdfast_maintenance
     WHERE extension = :extension
       AND task = :task
       AND (due_at <= {now} OR due_at > {now+:most})
    {skip_locked}
)
UPDATE holdfast_maintenance
   SET due_at = {now+:every}
 WHERE extension = :extension
   AND task IN (SELECT task FROM free)
RETURNING failures

-- name: end_task
UPDATE holdfast_maintenance
   SET ran_at = {now}, failures = 0, error = NULL
 WHERE extension = :extension
   AND task = :task
RETURNING task

-- name: note_task_failure
UPDATE holdfast_maintenance
   SET failures = failures + 1, error = :error, due_at = {now+:seconds}
 WHERE extension = :extension
   AND task = :task
RETURNING failures

-- name: extensions
SELECT name, seen_at, {now} AS now_at FROM holdfast_extensions ORDER BY name

-- name: stale_extensions
-- Extensions that no maintenance process has had for `seconds`, or ever.
SELECT known.name
  FROM (SELECT name FROM holdfast_extensions
        UNION
        SELECT need.value FROM holdfast_job_types, {items:holdfast_job_types.needs} AS need) AS known
  LEFT JOIN holdfast_extensions AS seen ON seen.name = known.name AND seen.seen_at > {now-:seconds}
 WHERE seen.name IS NULL
 ORDER BY known.name

-- name: jobs_that_need
-- Counts unfinished jobs, up to the limit.
SELECT count(*) AS jobs
  FROM (SELECT 1 AS one
          FROM holdfast_open_jobs
         WHERE needs IS NOT NULL
           AND EXISTS (SELECT 1 FROM {items:holdfast_open_jobs.needs} AS need WHERE need.value = :extension)
         LIMIT {limit}) AS found

-- name: forget_extension
DELETE FROM holdfast_extensions WHERE name = :name RETURNING name

-- name: forget_tasks_of
DELETE FROM holdfast_maintenance WHERE extension = :name RETURNING task

-- name: forget_failures_of
DELETE FROM holdfast_hook_failures WHERE extension = :name RETURNING job_id
