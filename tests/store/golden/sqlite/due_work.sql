SELECT coalesce(max(coalesce((SELECT pos FROM holdfast_events ORDER BY pos DESC LIMIT 1), 0), coalesce((SELECT max(pos) FROM holdfast_readers), 0), (SELECT pruned FROM holdfast_event_log)) >= 9223372036854775807, FALSE) AS log_ahead,
       NOT EXISTS (SELECT 1 FROM holdfast_sweeps WHERE name = 'reap' AND swept_at > (:now - CAST((:pause) * 1000000 AS INTEGER)) AND swept_at <= (:now + CAST((5) * 1000000 AS INTEGER))) AS unswept,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= :now) AS ripe,
       EXISTS (SELECT 1 FROM holdfast_running) AS running,
       FALSE AS batches,
       coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at LIMIT 1) <= (:now - CAST((:orphaned) * 1000000 AS INTEGER)), FALSE)
       OR coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at DESC LIMIT 1) > (:now + CAST((5) * 1000000 AS INTEGER)), FALSE) AS orphans,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE liveness <> 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (:now - CAST((offline_seconds) * 1000000 AS INTEGER))) AS silent,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE kind = 'local'
                  AND enabled
                  AND liveness = 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (:now - CAST((:workers_kept) * 1000000 AS INTEGER))) AS forgotten,
       coalesce((SELECT claimed_at FROM holdfast_claims ORDER BY claimed_at LIMIT 1) <= (:now - CAST((:claims_kept) * 1000000 AS INTEGER)), FALSE) AS claims,
       coalesce((SELECT expires_at FROM holdfast_sessions ORDER BY expires_at LIMIT 1) <= :now, FALSE) AS sessions,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE (SELECT at FROM holdfast_events AS oldest WHERE oldest.job_id = holdfast_workers.id ORDER BY seq LIMIT 1) <= (:now - CAST((:lines_kept) * 1000000 AS INTEGER))
                  AND (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id)
                      < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)) AS lines;
