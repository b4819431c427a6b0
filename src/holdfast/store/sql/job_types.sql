-- name: put_job_type
INSERT INTO holdfast_job_types (name, lifecycle, queue, policy, requires, prefers, limits, schema, declared_by, updated_at)
VALUES (:name, :lifecycle, :queue, :policy, :requires, :prefers, :limits, :schema, :declared_by, {now})
    ON CONFLICT (name) DO UPDATE
   SET lifecycle   = excluded.lifecycle,
       queue       = excluded.queue,
       policy      = excluded.policy,
       requires    = excluded.requires,
       prefers     = excluded.prefers,
       limits      = excluded.limits,
       schema      = excluded.schema,
       declared_by = excluded.declared_by,
       conflict    = NULL,
       updated_at  = excluded.updated_at
RETURNING name

-- name: job_types
-- `machine` is the definition of the lifecycle, NULL for a built-in one.
SELECT t.name, t.lifecycle, t.queue, t.policy, t.requires, t.prefers, t.limits, t.schema, t.needs, t.declared_by,
       t.conflict, l.body AS machine
  FROM holdfast_job_types t
  LEFT JOIN holdfast_lifecycles l ON l.name = t.lifecycle
 ORDER BY t.name

-- name: put_lifecycle
INSERT INTO holdfast_lifecycles (name, body, updated_at)
VALUES (:name, :body, {now})
    ON CONFLICT (name) DO UPDATE
   SET body       = excluded.body,
       updated_at = excluded.updated_at
RETURNING name

-- name: note_conflict
UPDATE holdfast_job_types SET conflict = :conflict WHERE name = :name RETURNING name

-- name: needs_of_type
SELECT needs, needs_by FROM holdfast_job_types WHERE name = :name

-- name: put_needs
-- Compare and set: nothing changes if another app has changed `needs_by` since `before` was read.
UPDATE holdfast_job_types
   SET needs = :needs, needs_by = :needs_by, updated_at = {now}
 WHERE name = :name
   AND coalesce(needs_by, '') = coalesce(:before, '')
RETURNING name

-- name: adopt_jobs
-- Adds hooks to unfinished jobs that were created before their type had them.
WITH picked AS MATERIALIZED (
    SELECT id FROM holdfast_open_jobs WHERE type = :type AND coalesce(needs, '') <> :needs LIMIT {limit}
)
UPDATE holdfast_jobs SET needs = :needs WHERE id {in picked} AND finished_at IS NULL RETURNING id

-- name: adopt_lane
-- Claimable jobs of a lane that were created by a process without these hooks: few, if any.
UPDATE holdfast_jobs
   SET needs = :needs
 WHERE id IN (SELECT id FROM holdfast_ready WHERE lane = :lane AND NOT hooked)
   AND due
   AND needs IS NULL
RETURNING id

-- name: free_jobs
-- Removes hooks from unfinished jobs whose type no longer needs them.
WITH picked AS MATERIALIZED (
    SELECT holdfast_open_jobs.id, t.needs
      FROM holdfast_open_jobs
      JOIN holdfast_job_types t ON t.name = holdfast_open_jobs.type
     WHERE holdfast_open_jobs.type {in:types text}
       AND holdfast_open_jobs.needs <> coalesce(t.needs, '')
     LIMIT {limit}
)
UPDATE holdfast_jobs
   SET needs = picked.needs
  FROM picked
 WHERE holdfast_jobs.id = picked.id
   AND holdfast_jobs.finished_at IS NULL
RETURNING holdfast_jobs.id

-- name: types_with_needs
SELECT name, needs_by FROM holdfast_job_types WHERE needs_by IS NOT NULL ORDER BY name

-- name: needs_that_name
-- The distinct `needs` of unfinished jobs that name this extension, and the number of jobs of each.
SELECT needs, count(*) AS jobs
  FROM holdfast_open_jobs
 WHERE needs IS NOT NULL
   AND EXISTS (SELECT 1 FROM {items:holdfast_open_jobs.needs} AS need WHERE need.value = :extension)
 GROUP BY needs
 ORDER BY needs

-- name: change_needs
-- An operator removes an extension from the `needs` of unfinished jobs.
WITH picked AS MATERIALIZED (
    SELECT id FROM holdfast_open_jobs WHERE needs = :before LIMIT {limit}
)
UPDATE holdfast_jobs SET needs = :after WHERE id {in picked} AND finished_at IS NULL RETURNING id
