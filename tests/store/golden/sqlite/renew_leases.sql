UPDATE holdfast_jobs
   SET lease_expires_at = (:now + CAST((holdfast_jobs.lease_seconds) * 1000000 AS INTEGER)),
       updated_at       = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token FROM json_each(:held)) AS held
 WHERE holdfast_jobs.id = held.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = :worker
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.cancel_requested_at, holdfast_jobs.lease_expires_at;
