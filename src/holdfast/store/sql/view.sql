-- name: outlines
-- Many asked for at once, each by its own tenant: a job of somebody else's is no job.
SELECT wanted.job, wanted.whose, {outline}, {now} AS now_at, {parts of jobs} AS parts
  FROM {rows:wanted(job uuid, whose text)}
  JOIN holdfast_jobs ON holdfast_jobs.id = wanted.job
 WHERE holdfast_jobs.tenant = wanted.whose

-- name: page_outlines
SELECT {outline}, {now} AS now_at FROM holdfast_jobs WHERE {filters} ORDER BY id DESC LIMIT {limit}

-- name: secret
SELECT value FROM holdfast_secrets WHERE name = :name

-- name: put_secret
-- Whoever comes first decides; all others take what they find.
INSERT INTO holdfast_secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING RETURNING name
