-- name: maintenance
SELECT extension, task, due_at, ran_at, failures, error, {now} AS now_at FROM maintenance ORDER BY extension, task

-- name: add_tasks
INSERT INTO maintenance (extension, task, due_at)
SELECT new.extension, new.task, {now} FROM {rows:new(extension text, task text)} WHERE TRUE
    ON CONFLICT (extension, task) DO NOTHING
RETURNING task

-- name: forget_tasks
DELETE FROM maintenance WHERE extension {in:names text} AND due_at <= {now-:seconds} RETURNING task

-- name: take_task
-- The process that gets it holds its row to the end of the transaction; the others pass it by. `most`: an interval that
-- was longer before, or a clock that was set back.
WITH free AS (
    SELECT task
      FROM maintenance
     WHERE extension = :extension
       AND task = :task
       AND (due_at <= {now} OR due_at > {now+:most})
    {skip_locked}
)
UPDATE maintenance
   SET due_at = {now+:every}
 WHERE extension = :extension
   AND task IN (SELECT task FROM free)
RETURNING failures

-- name: end_task
UPDATE maintenance
   SET ran_at = {now}, failures = 0, error = NULL
 WHERE extension = :extension
   AND task = :task
RETURNING task

-- name: note_task_failure
UPDATE maintenance
   SET failures = failures + 1, error = :error, due_at = {now+:seconds}
 WHERE extension = :extension
   AND task = :task
RETURNING failures

-- name: extensions
SELECT name, seen_at, {now} AS now_at FROM extensions ORDER BY name
