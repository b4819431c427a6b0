SELECT l.id, l.type, head.priority, head.id AS head, head.needs IS NOT NULL AS hooked,
       CASE WHEN EXISTS (SELECT 1 FROM json_each(l.prefers) AS p WHERE p.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
             AND EXISTS (SELECT 1
                           FROM holdfast_workers other
                          WHERE other.enabled
                            AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(other.tenants) AS t))
                            AND other.last_heartbeat_at >= (:now - CAST((2 * other.heartbeat_seconds) * 1000000 AS INTEGER))
                            AND other.liveness <> 'offline'
                            AND NOT EXISTS (SELECT 1 FROM json_each(l.prefers) AS p
                                             WHERE p.value NOT IN (SELECT value FROM json_each(other.offers) AS o))
                            AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS r
                                             WHERE r.value NOT IN (SELECT value FROM json_each(other.offers) AS o))
                            AND NOT EXISTS (SELECT 1 FROM holdfast_jobs held
                                             WHERE held.state = 'running' AND held.lease_worker = other.id))
            THEN l.defer_seconds
            ELSE 0
       END AS waits
  FROM holdfast_workers w
  CROSS JOIN holdfast_lanes l
  JOIN holdfast_jobs head ON head.id = (SELECT j.id
                                          FROM holdfast_jobs j
                                         WHERE j.due
                                           AND j.lane = l.id
                                         ORDER BY j.priority DESC, j.id
                                         LIMIT 1)
 WHERE w.id = :worker
   AND head.needs IS NULL
   AND w.enabled
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
   AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
   AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t))
   AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS r WHERE r.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
 ORDER BY head.priority DESC, head.id
 LIMIT 100;
