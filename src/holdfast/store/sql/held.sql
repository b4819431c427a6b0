-- name: lock_job
SELECT id FROM jobs WHERE id = :id
{locked}

-- name: hold_job
-- Right before the commit of a transaction of its handler: nothing is written for a lease that is lost.
SELECT jobs.id
  FROM jobs
 WHERE jobs.id = :id
   AND {running}
   AND jobs.lease_token = :token
   AND (jobs.late_writes OR jobs.lease_expires_at > {now})
{locked}
