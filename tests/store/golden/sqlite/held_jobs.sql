SELECT jobs.id, jobs.type, jobs.lifecycle, jobs.policy, jobs.moves, jobs.attempt, jobs.max_attempts, jobs.failures, jobs.lost,
       jobs.cancel_requested_at
  FROM jobs
  JOIN (SELECT value->>0 AS id, value->>1 AS token FROM json_each(:held)) AS held ON jobs.id = held.id
 WHERE jobs.state = 'running'
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = :worker
   AND jobs.needs IS NULL
 ORDER BY jobs.id
;
