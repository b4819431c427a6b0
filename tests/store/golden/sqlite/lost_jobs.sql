SELECT holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.lifecycle, holdfast_jobs.policy,
       holdfast_jobs.moves, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.failures,
       holdfast_jobs.lost, holdfast_jobs.lease_worker, holdfast_jobs.lease_expires_at,
       holdfast_jobs.cancel_requested_at, holdfast_jobs.reason, holdfast_jobs.error,
       holdfast_jobs.lease_instance IN (SELECT value FROM json_each(:gone))
           AND holdfast_jobs.lease_expires_at <= (:now + CAST((holdfast_jobs.lease_seconds - :unheard) * 1000000 AS INTEGER)) AS seen_dead,
       holdfast_jobs.claimed_at <= (:now - CAST((p.max_runtime_seconds) * 1000000 AS INTEGER)) AS over_runtime,
       NOT :in_grace AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= (:now - CAST((p.no_progress_seconds) * 1000000 AS INTEGER)) AS no_progress,
       holdfast_jobs.cancel_requested_at <= (:now - CAST((p.cancel_grace_seconds) * 1000000 AS INTEGER)) AS over_cancel
  FROM holdfast_running AS holdfast_jobs
  JOIN holdfast_policies p ON p.id = holdfast_jobs.policy
 WHERE (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
   AND (holdfast_jobs.lease_instance IN (SELECT value FROM json_each(:gone))
           AND holdfast_jobs.lease_expires_at <= (:now + CAST((holdfast_jobs.lease_seconds - :unheard) * 1000000 AS INTEGER))
        OR holdfast_jobs.claimed_at <= (:now - CAST((p.max_runtime_seconds) * 1000000 AS INTEGER))
        OR holdfast_jobs.cancel_requested_at <= (:now - CAST((p.cancel_grace_seconds) * 1000000 AS INTEGER))
        OR NOT :in_grace
           AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= (:now - CAST((p.no_progress_seconds) * 1000000 AS INTEGER))
        OR NOT :in_grace
           AND holdfast_jobs.lease_expires_at <= :now
           AND (NOT p.waits_for_offline
                OR NOT EXISTS (SELECT 1
                                 FROM holdfast_workers w
                                WHERE w.id = holdfast_jobs.lease_worker
                                  AND coalesce(w.last_heartbeat_at, w.registered_at) > (:now - CAST((p.offline_seconds) * 1000000 AS INTEGER)))))
   AND holdfast_jobs.needs IS NULL
   AND TRUE
 ORDER BY holdfast_jobs.id
 LIMIT 100
;
