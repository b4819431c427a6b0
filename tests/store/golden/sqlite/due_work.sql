WITH RECURSIVE keyed(lane, nth) AS (
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > 0), 1
     UNION ALL
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > keyed.lane), keyed.nth + 1
      FROM keyed
     WHERE keyed.lane IS NOT NULL AND keyed.nth < 100
)
SELECT coalesce(max(coalesce((SELECT pos FROM holdfast_events ORDER BY pos DESC LIMIT 1), 0), coalesce((SELECT max(pos) FROM holdfast_readers), 0), (SELECT pruned FROM holdfast_event_log)) >= 9223372036854775807, FALSE) AS log_ahead,
       NOT EXISTS (SELECT 1 FROM holdfast_sweeps WHERE name = 'reap' AND swept_at > (:now - CAST((:pause) * 1000000 AS INTEGER)) AND swept_at <= (:now + CAST((5) * 1000000 AS INTEGER))) AS unswept,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= :now) AS ripe,
       EXISTS (SELECT 1 FROM holdfast_running AS running WHERE TRUE) AS running,
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
       EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NULL)
       OR EXISTS (SELECT 1
                    FROM keyed
                   WHERE keyed.nth = 100 AND keyed.lane IS NOT NULL
                      OR (SELECT max(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at IS NOT NULL) > (:now + CAST((5) * 1000000 AS INTEGER))) AS full_keys,
       EXISTS (SELECT 1 FROM holdfast_limit_tokens WHERE full_at <= :now) AS tokens,
       EXISTS (SELECT 1 FROM holdfast_limits WHERE updated_at >= (:now - CAST((:recounted) * 1000000 AS INTEGER))) AS changed_limits,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE (SELECT at FROM holdfast_events AS oldest WHERE oldest.job_id = holdfast_workers.id ORDER BY seq LIMIT 1) <= (:now - CAST((:lines_kept) * 1000000 AS INTEGER))
                  AND (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id)
                      < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)) AS lines;
