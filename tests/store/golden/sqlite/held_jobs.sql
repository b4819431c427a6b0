SELECT holdfast_jobs.id, holdfast_jobs.type, holdfast_jobs.lifecycle, holdfast_jobs.policy, holdfast_jobs.moves,
       holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.failures, holdfast_jobs.lost,
       holdfast_jobs.cancel_requested_at, holdfast_jobs.reason
  FROM holdfast_jobs
  JOIN (SELECT value->>0 AS id, value->>1 AS token FROM json_each(:held)) AS held ON holdfast_jobs.id = held.id
 WHERE holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = :worker
   AND holdfast_jobs.needs IS NULL
 ORDER BY holdfast_jobs.id
;
