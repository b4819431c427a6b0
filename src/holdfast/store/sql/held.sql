-- name: lock_job
SELECT id FROM jobs WHERE id = :id
{locked}

-- name: hold_job
-- For a transaction of its handler: whoever would take the job away waits for the end of that, or passes it over.
SELECT jobs.id, jobs.lease_worker
  FROM jobs
 WHERE jobs.id = :id
   AND {running}
   AND jobs.lease_token = :token
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
{locked}
