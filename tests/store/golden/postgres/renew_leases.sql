UPDATE holdfast_jobs
   SET lease_expires_at = (coalesce($1::timestamptz, statement_timestamp()) + (holdfast_jobs.lease_seconds) * interval '1 second'),
       updated_at       = coalesce($1::timestamptz, statement_timestamp())
  FROM unnest($2::uuid[], $3::uuid[]) AS held(id, token)
 WHERE holdfast_jobs.id = held.id
   AND holdfast_jobs.state = 'running'
   AND holdfast_jobs.lease_token = held.token
   AND holdfast_jobs.lease_worker = $4
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.cancel_requested_at, holdfast_jobs.lease_expires_at;
