-- Health figures, read every few seconds: each count uses an index and stops at the limit.

-- name: health
-- ORDER BY keeps PostgreSQL on the index while its statistics are out of date.
SELECT {now} AS seen_at,
       (SELECT count(*) FROM holdfast_migrations WHERE extension = 'holdfast') AS migrations,
       (SELECT count(*) FROM holdfast_workers WHERE enabled AND liveness <> 'offline') AS workers,
       (SELECT count(*)
          FROM holdfast_workers
         WHERE kind = 'local'
           AND liveness <> 'offline'
           AND coalesce(last_heartbeat_at, registered_at) > {now-0.5 * offline_seconds}
           AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = holdfast_workers.id)) AS maintaining,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at LIMIT {limit}) AS c) AS created,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_ready ORDER BY lane, priority DESC, id LIMIT {limit}) AS w) AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') LIMIT {limit}) AS l) AS later,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_running LIMIT {limit}) AS r) AS running,
       (SELECT count(*)
          FROM (SELECT 1
                  FROM holdfast_jobs
                 WHERE parked = 'dead'
                   AND parked_at >= {now-:seconds}
                 ORDER BY parked_at DESC
                 LIMIT {limit}) AS d) AS died
