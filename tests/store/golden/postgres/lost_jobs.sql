SELECT holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.lifecycle, holdfast_jobs.policy,
       holdfast_jobs.moves, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.failures,
       holdfast_jobs.lost, holdfast_jobs.lease_worker, holdfast_jobs.lease_expires_at,
       holdfast_jobs.cancel_requested_at, holdfast_jobs.reason, holdfast_jobs.error,
       holdfast_jobs.lease_instance = ANY($1::text[])
           AND holdfast_jobs.lease_expires_at <= (coalesce($2::timestamptz, statement_timestamp()) + (holdfast_jobs.lease_seconds - $3) * interval '1 second') AS seen_dead,
       holdfast_jobs.claimed_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.max_runtime_seconds) * interval '1 second') AS over_runtime,
       NOT $4 AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= (coalesce($2::timestamptz, statement_timestamp()) - (p.no_progress_seconds) * interval '1 second') AS no_progress,
       holdfast_jobs.cancel_requested_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.cancel_grace_seconds) * interval '1 second') AS over_cancel
  FROM holdfast_running AS holdfast_jobs
  JOIN holdfast_policies p ON p.id = holdfast_jobs.policy
 WHERE ($5::text[] IS NULL OR holdfast_jobs.queue = ANY($5::text[]))
   AND (holdfast_jobs.lease_instance = ANY($1::text[])
           AND holdfast_jobs.lease_expires_at <= (coalesce($2::timestamptz, statement_timestamp()) + (holdfast_jobs.lease_seconds - $3) * interval '1 second')
        OR holdfast_jobs.claimed_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.max_runtime_seconds) * interval '1 second')
        OR holdfast_jobs.cancel_requested_at <= (coalesce($2::timestamptz, statement_timestamp()) - (p.cancel_grace_seconds) * interval '1 second')
        OR NOT $4
           AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= (coalesce($2::timestamptz, statement_timestamp()) - (p.no_progress_seconds) * interval '1 second')
        OR NOT $4
           AND holdfast_jobs.lease_expires_at <= coalesce($2::timestamptz, statement_timestamp())
           AND (NOT p.waits_for_offline
                OR NOT EXISTS (SELECT 1
                                 FROM holdfast_workers w
                                WHERE w.id = holdfast_jobs.lease_worker
                                  AND coalesce(w.last_heartbeat_at, w.registered_at) > (coalesce($2::timestamptz, statement_timestamp()) - (p.offline_seconds) * interval '1 second'))))
   AND holdfast_jobs.needs IS NULL
   AND TRUE
 ORDER BY holdfast_jobs.id
 LIMIT 100
FOR UPDATE OF holdfast_jobs SKIP LOCKED;
