-- name: put_job_type
INSERT INTO job_types (name, lifecycle, queue, policy, requires, prefers, schema, declared_by, updated_at)
VALUES (:name, :lifecycle, :queue, :policy, :requires, :prefers, :schema, :declared_by, {now})
    ON CONFLICT (name) DO UPDATE
   SET lifecycle   = excluded.lifecycle,
       queue       = excluded.queue,
       policy      = excluded.policy,
       requires    = excluded.requires,
       prefers     = excluded.prefers,
       schema      = excluded.schema,
       declared_by = excluded.declared_by,
       conflict    = NULL,
       updated_at  = excluded.updated_at
RETURNING name

-- name: job_types
SELECT name, lifecycle, queue, policy, requires, prefers, schema, declared_by, conflict FROM job_types ORDER BY name

-- name: note_conflict
UPDATE job_types SET conflict = :conflict WHERE name = :name RETURNING name
