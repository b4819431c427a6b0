WITH RECURSIVE keyed(lane, nth) AS (
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > 0), 1
     UNION ALL
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > keyed.lane), keyed.nth + 1
      FROM keyed
     WHERE keyed.lane IS NOT NULL AND keyed.nth < 100
)
SELECT coalesce(greatest(coalesce((SELECT pos FROM holdfast_events ORDER BY pos DESC LIMIT 1), 0), coalesce((SELECT max(pos) FROM holdfast_readers), 0), (SELECT pruned FROM holdfast_event_log)) >= (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base FROM holdfast_event_log), FALSE) AS log_ahead,
       NOT EXISTS (SELECT 1 FROM holdfast_sweeps WHERE name = 'reap' AND swept_at > (coalesce($1::timestamptz, statement_timestamp()) - ($2) * interval '1 second') AND swept_at <= (coalesce($1::timestamptz, statement_timestamp()) + (5) * interval '1 second')) AS unswept,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= coalesce($1::timestamptz, statement_timestamp())) AS ripe,
       EXISTS (SELECT 1 FROM (SELECT ids FROM holdfast_claim_batches ORDER BY claimed_at DESC) AS newest WHERE EXISTS (SELECT 1 FROM holdfast_jobs AS running WHERE running.id = ANY (newest.ids) AND running.state = 'running' AND TRUE LIMIT 1 OFFSET 0)) AS running,
       EXISTS (SELECT 1 FROM holdfast_claim_batches WHERE claimed_at <= (coalesce($1::timestamptz, statement_timestamp()) - (1) * interval '1 second')) AS batches,
       coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($3) * interval '1 second'), FALSE)
       OR coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at DESC LIMIT 1) > (coalesce($1::timestamptz, statement_timestamp()) + (5) * interval '1 second'), FALSE) AS orphans,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE liveness <> 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (coalesce($1::timestamptz, statement_timestamp()) - (offline_seconds) * interval '1 second')) AS silent,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE kind = 'local'
                  AND enabled
                  AND liveness = 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (coalesce($1::timestamptz, statement_timestamp()) - ($4) * interval '1 second')) AS forgotten,
       coalesce((SELECT claimed_at FROM holdfast_claims ORDER BY claimed_at LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($5) * interval '1 second'), FALSE) AS claims,
       coalesce((SELECT expires_at FROM holdfast_sessions ORDER BY expires_at LIMIT 1) <= coalesce($1::timestamptz, statement_timestamp()), FALSE) AS sessions,
       EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NULL)
       OR EXISTS (SELECT 1
                    FROM keyed
                   WHERE keyed.nth = 100 AND keyed.lane IS NOT NULL
                      OR (SELECT max(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at IS NOT NULL) > (coalesce($1::timestamptz, statement_timestamp()) + (5) * interval '1 second')) AS full_keys,
       EXISTS (SELECT 1 FROM holdfast_limit_tokens WHERE full_at <= coalesce($1::timestamptz, statement_timestamp())) AS tokens,
       EXISTS (SELECT 1 FROM holdfast_limits WHERE updated_at >= (coalesce($1::timestamptz, statement_timestamp()) - ($6) * interval '1 second')) AS changed_limits,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE (SELECT at FROM holdfast_events AS oldest WHERE oldest.job_id = holdfast_workers.id ORDER BY seq LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($7) * interval '1 second')
                  AND (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id)
                      < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)) AS lines;
