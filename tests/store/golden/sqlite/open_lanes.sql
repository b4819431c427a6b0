WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > :after
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > CASE WHEN :by_tenant THEN walk.lane | 4294967295 ELSE walk.lane END), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
),
listed AS (
    SELECT walk.lane FROM walk WHERE walk.lane IS NOT NULL AND NOT :named
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE :named
               AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
               AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
               AND l.id > :after
             ORDER BY l.id
             LIMIT 100) AS matching
)
SELECT listed.lane AS id, l.tenant, l.type, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky,
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
                            AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id))
            THEN l.defer_seconds
            ELSE 0
       END AS waits
  FROM listed
  JOIN holdfast_workers w ON w.id = :worker
  LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = listed.lane ORDER BY r.priority DESC, r.id LIMIT 1)
  LEFT JOIN holdfast_lanes l
    ON l.id = listed.lane
   AND w.enabled
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
   AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
   AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t))
   AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS r WHERE r.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
   AND NOT head.hooked
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant;
