SELECT jobs.id, jobs.lease_token, jobs.lifecycle, jobs.policy, jobs.moves, jobs.attempt, jobs.max_attempts, jobs.failures,
       jobs.lost, jobs.lease_worker, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.error,
       jobs.lease_instance = ANY($1::text[])
           AND jobs.lease_expires_at <= (coalesce($2::timestamptz, statement_timestamp()) + (jobs.lease_seconds - $3) * interval '1 second') AS seen_dead,
       jobs.claimed_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.max_runtime_seconds) * interval '1 second') AS over_runtime,
       NOT $4 AND coalesce(jobs.progress_at, jobs.claimed_at) <= (coalesce($2::timestamptz, statement_timestamp()) - (p.no_progress_seconds) * interval '1 second') AS no_progress,
       jobs.cancel_requested_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.cancel_grace_seconds) * interval '1 second') AS over_cancel
  FROM jobs
  JOIN policies p ON p.id = jobs.policy
 WHERE jobs.state = 'running'
   AND ($5::text[] IS NULL OR jobs.queue = ANY($5::text[]))
   AND (jobs.lease_instance = ANY($1::text[])
           AND jobs.lease_expires_at <= (coalesce($2::timestamptz, statement_timestamp()) + (jobs.lease_seconds - $3) * interval '1 second')
        OR jobs.claimed_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.max_runtime_seconds) * interval '1 second')
        OR jobs.cancel_requested_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.cancel_grace_seconds) * interval '1 second')
        OR NOT $4
           AND coalesce(jobs.progress_at, jobs.claimed_at) <= (coalesce($2::timestamptz, statement_timestamp()) - (p.no_progress_seconds) * interval '1 second')
        OR NOT $4
           AND jobs.lease_expires_at <= coalesce($2::timestamptz, statement_timestamp())
           AND (NOT p.waits_for_offline
                OR NOT EXISTS (SELECT 1
                                 FROM workers w
                                WHERE w.id = jobs.lease_worker
                                  AND coalesce(w.last_heartbeat_at, w.registered_at) > (coalesce($2::timestamptz, statement_timestamp()) - (p.offline_seconds) * interval '1 second'))))
   AND jobs.needs IS NULL
   AND TRUE
 ORDER BY jobs.id
 LIMIT 100
FOR UPDATE OF jobs SKIP LOCKED;
