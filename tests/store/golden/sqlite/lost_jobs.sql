SELECT jobs.id, jobs.lease_token, jobs.lifecycle, jobs.policy, jobs.moves, jobs.attempt, jobs.max_attempts, jobs.failures,
       jobs.lost, jobs.lease_worker, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.error,
       jobs.lease_instance IN (SELECT value FROM json_each(:gone))
           AND jobs.lease_expires_at <= (:now + CAST((jobs.lease_seconds - :unheard) * 1000000 AS INTEGER)) AS seen_dead,
       jobs.claimed_at <= (:now - CAST((p.max_runtime_seconds) * 1000000 AS INTEGER)) AS over_runtime,
       NOT :in_grace AND coalesce(jobs.progress_at, jobs.claimed_at) <= (:now - CAST((p.no_progress_seconds) * 1000000 AS INTEGER)) AS no_progress,
       jobs.cancel_requested_at <= (:now - CAST((p.cancel_grace_seconds) * 1000000 AS INTEGER)) AS over_cancel
  FROM jobs
  JOIN policies p ON p.id = jobs.policy
 WHERE jobs.state = 'running'
   AND (:queues IS NULL OR jobs.queue IN (SELECT value FROM json_each(:queues)))
   AND (jobs.lease_instance IN (SELECT value FROM json_each(:gone))
           AND jobs.lease_expires_at <= (:now + CAST((jobs.lease_seconds - :unheard) * 1000000 AS INTEGER))
        OR jobs.claimed_at <= (:now - CAST((p.max_runtime_seconds) * 1000000 AS INTEGER))
        OR jobs.cancel_requested_at <= (:now - CAST((p.cancel_grace_seconds) * 1000000 AS INTEGER))
        OR NOT :in_grace
           AND coalesce(jobs.progress_at, jobs.claimed_at) <= (:now - CAST((p.no_progress_seconds) * 1000000 AS INTEGER))
        OR NOT :in_grace
           AND jobs.lease_expires_at <= :now
           AND (NOT p.waits_for_offline
                OR NOT EXISTS (SELECT 1
                                 FROM workers w
                                WHERE w.id = jobs.lease_worker
                                  AND coalesce(w.last_heartbeat_at, w.registered_at) > (:now - CAST((p.offline_seconds) * 1000000 AS INTEGER)))))
   AND jobs.needs IS NULL
   AND TRUE
 ORDER BY jobs.id
 LIMIT 100
;
