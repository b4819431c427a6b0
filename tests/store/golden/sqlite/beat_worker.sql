WITH others AS (
    SELECT id
      FROM holdfast_workers
     WHERE id <> :worker
       AND kind = 'local'
       AND liveness <> 'offline'
       AND coalesce(last_heartbeat_at, registered_at) > (:now - CAST((0.5 * offline_seconds) * 1000000 AS INTEGER))
       AND NOT EXISTS (SELECT 1 FROM holdfast_keys WHERE holdfast_keys.worker_id = holdfast_workers.id)
)
UPDATE holdfast_workers
   SET last_heartbeat_at = :now,
       liveness          = :liveness,
       slots             = coalesce(:slots, slots)
 WHERE id = :worker
RETURNING enabled,
          (SELECT count(*) FROM others) AS others,
          (SELECT count(*) FROM others WHERE id < :worker) AS ahead,
          EXISTS (SELECT 1 FROM holdfast_running AS running WHERE running.lease_instance IS NOT NULL) AS busy;
