SELECT coalesce(greatest(coalesce((SELECT pos FROM events ORDER BY pos DESC LIMIT 1), 0), coalesce((SELECT max(pos) FROM readers), 0), (SELECT pruned FROM event_log)) >= (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint + base FROM event_log), FALSE) AS log_ahead,
       NOT EXISTS (SELECT 1 FROM sweeps WHERE name = 'reap' AND swept_at > (coalesce($1::timestamptz, statement_timestamp()) - ($2) * interval '1 second') AND swept_at <= (coalesce($1::timestamptz, statement_timestamp()) + (5) * interval '1 second')) AS unswept,
       coalesce((SELECT run_at FROM jobs WHERE NOT due ORDER BY run_at LIMIT 1) <= coalesce($1::timestamptz, statement_timestamp()), FALSE) AS ripe,
       EXISTS (SELECT 1 FROM jobs WHERE state = 'running') AS running,
       coalesce((SELECT created_at FROM jobs WHERE state = 'created' ORDER BY created_at LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($3) * interval '1 second'), FALSE)
       OR coalesce((SELECT created_at FROM jobs WHERE state = 'created' ORDER BY created_at DESC LIMIT 1) > (coalesce($1::timestamptz, statement_timestamp()) + (5) * interval '1 second'), FALSE) AS orphans,
       EXISTS (SELECT 1
                 FROM workers
                WHERE liveness <> 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (coalesce($1::timestamptz, statement_timestamp()) - (offline_seconds) * interval '1 second')) AS silent,
       EXISTS (SELECT 1
                 FROM workers
                WHERE kind = 'local'
                  AND enabled
                  AND liveness = 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= (coalesce($1::timestamptz, statement_timestamp()) - ($4) * interval '1 second')) AS forgotten,
       coalesce((SELECT claimed_at FROM claims ORDER BY claimed_at LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($5) * interval '1 second'), FALSE) AS claims,
       coalesce((SELECT expires_at FROM sessions ORDER BY expires_at LIMIT 1) <= coalesce($1::timestamptz, statement_timestamp()), FALSE) AS sessions,
       EXISTS (SELECT 1
                 FROM workers
                WHERE (SELECT at FROM events AS oldest WHERE oldest.job_id = workers.id ORDER BY seq LIMIT 1) <= (coalesce($1::timestamptz, statement_timestamp()) - ($6) * interval '1 second')
                  AND (SELECT min(seq) FROM events AS first WHERE first.job_id = workers.id)
                      < (SELECT max(seq) FROM events AS newest WHERE newest.job_id = workers.id)) AS lines;
