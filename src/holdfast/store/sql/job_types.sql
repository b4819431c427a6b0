-- name: put_job_type
INSERT INTO job_types (name, lifecycle, queue, policy, requires, prefers, schema, needs, declared_by, updated_at)
VALUES (:name, :lifecycle, :queue, :policy, :requires, :prefers, :schema, :needs, :declared_by, {now})
    ON CONFLICT (name) DO UPDATE
   SET lifecycle   = excluded.lifecycle,
       queue       = excluded.queue,
       policy      = excluded.policy,
       requires    = excluded.requires,
       prefers     = excluded.prefers,
       schema      = excluded.schema,
       needs       = excluded.needs,
       declared_by = excluded.declared_by,
       conflict    = NULL,
       updated_at  = excluded.updated_at
RETURNING name

-- name: job_types
SELECT name, lifecycle, queue, policy, requires, prefers, schema, needs, declared_by, conflict FROM job_types ORDER BY name

-- name: note_conflict
UPDATE job_types SET conflict = :conflict WHERE name = :name RETURNING name

-- name: adopt_jobs
-- Unfinished jobs that were created before their type had these hooks. Each part uses an index of its own.
WITH picked AS MATERIALIZED (
    SELECT id FROM jobs WHERE due AND type = :type AND coalesce(needs, '') <> coalesce(:needs, '')
     UNION ALL
    SELECT id FROM jobs WHERE NOT due AND type = :type AND coalesce(needs, '') <> coalesce(:needs, '')
     UNION ALL
    SELECT id FROM jobs WHERE state = 'running' AND type = :type AND coalesce(needs, '') <> coalesce(:needs, '')
     UNION ALL
    SELECT id FROM jobs WHERE state = 'created' AND type = :type AND coalesce(needs, '') <> coalesce(:needs, '')
     LIMIT {limit}
)
UPDATE jobs SET needs = :needs WHERE id {in picked} RETURNING id
