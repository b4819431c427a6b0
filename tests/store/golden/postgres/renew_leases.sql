UPDATE jobs
   SET lease_expires_at = (coalesce($1::timestamptz, statement_timestamp()) + (jobs.lease_seconds) * interval '1 second'),
       updated_at       = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[]) AS held(id, token)
 WHERE jobs.id = held.id
   AND jobs.state || '' = 'running'
   AND jobs.lease_token = held.token
   AND jobs.lease_worker = $4
RETURNING jobs.id, jobs.lease_token, jobs.cancel_requested_at, jobs.lease_expires_at;
