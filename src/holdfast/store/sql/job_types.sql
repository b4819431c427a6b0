-- name: put_job_type
INSERT INTO job_types (name, lifecycle, queue, policy, requires, prefers, updated_at)
VALUES (:name, :lifecycle, :queue, :policy, :requires, :prefers, {now})
    ON CONFLICT (name) DO UPDATE
   SET lifecycle  = excluded.lifecycle,
       queue      = excluded.queue,
       policy     = excluded.policy,
       requires   = excluded.requires,
       prefers    = excluded.prefers,
       updated_at = excluded.updated_at
RETURNING name

-- name: job_types
SELECT name, lifecycle, queue, policy, requires, prefers FROM job_types ORDER BY name
