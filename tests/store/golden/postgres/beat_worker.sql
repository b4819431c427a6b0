WITH others AS (
    SELECT id
      FROM holdfast_workers
     WHERE id <> $1
       AND kind = 'local'
       AND liveness <> 'offline'
       AND coalesce(last_heartbeat_at, registered_at) > (coalesce($2::timestamptz, statement_timestamp()) - (0.5 * offline_seconds) * interval '1 second')
       AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = holdfast_workers.id)
)
UPDATE holdfast_workers
   SET last_heartbeat_at = coalesce($2::timestamptz, statement_timestamp()),
       liveness          = $3,
       slots             = coalesce($4, slots)
 WHERE id = $1
RETURNING enabled,
          (SELECT count(*) FROM others) AS others,
          (SELECT count(*) FROM others WHERE id < $1) AS ahead,
          EXISTS (SELECT 1 FROM (SELECT ids FROM holdfast_claim_batches ORDER BY claimed_at DESC) AS newest WHERE EXISTS (SELECT 1 FROM holdfast_jobs AS running WHERE running.id = ANY (newest.ids) AND running.state = 'running' AND running.lease_instance IS NOT NULL LIMIT 1 OFFSET 0)) AS busy;
