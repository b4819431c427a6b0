-- name: lock_job
SELECT id FROM holdfast_jobs WHERE id = :id
{locked}

-- name: hold_job
-- Checks and locks the lease right before a handler's transaction commits: a lost lease writes nothing.
SELECT holdfast_jobs.id
  FROM holdfast_jobs
 WHERE holdfast_jobs.id = :id
   AND {running}
   AND holdfast_jobs.lease_token = :token
   AND (holdfast_jobs.late_writes OR holdfast_jobs.lease_expires_at > {now})
{locked}
