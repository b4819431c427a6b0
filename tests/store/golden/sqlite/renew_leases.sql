UPDATE jobs
   SET lease_expires_at = (:now + CAST((jobs.lease_seconds) * 1000000 AS INTEGER)),
       updated_at       = :now
  FROM (SELECT value->>0 AS id, value->>1 AS token FROM json_each(:held)) AS held
 WHERE jobs.id = held.id
   AND jobs.state = 'running'
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = :worker
RETURNING jobs.id, jobs.lease_token, jobs.cancel_requested_at, jobs.lease_expires_at;
