SELECT jobs.id, jobs.type, jobs.lifecycle, jobs.policy, jobs.moves, jobs.attempt, jobs.max_attempts, jobs.failures, jobs.lost,
       jobs.cancel_requested_at
  FROM jobs
  JOIN unnest($1::uuid[], $2::uuid[]) AS held(id, token) ON jobs.id = held.id
 WHERE jobs.state || '' = 'running'
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = $3
   AND jobs.needs IS NULL
 ORDER BY jobs.id
FOR UPDATE OF jobs;
