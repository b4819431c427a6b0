WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > $1
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > CASE WHEN $2 THEN walk.lane | 4294967295 ELSE walk.lane END), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
),
listed AS (
    SELECT walk.lane FROM walk WHERE walk.lane IS NOT NULL AND NOT $3
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE $3
               AND ($4::text[] IS NULL OR l.queue = ANY($4::text[]))
               AND ($5::text[] IS NULL OR l.type = ANY($5::text[]))
               AND l.id > $1
             ORDER BY l.id
             LIMIT 100) AS matching
)
SELECT listed.lane AS id, l.tenant, l.type, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky,
       CASE WHEN EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS p WHERE p.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
             AND EXISTS (SELECT 1
                           FROM holdfast_workers other
                          WHERE other.enabled
                            AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(other.tenants::json) AS t))
                            AND other.last_heartbeat_at >= (coalesce($6::timestamptz, statement_timestamp()) - (2 * other.heartbeat_seconds) * interval '1 second')
                            AND other.liveness <> 'offline'
                            AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS p
                                             WHERE p.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o))
                            AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS r
                                             WHERE r.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o))
                            AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id))
            THEN l.defer_seconds
            ELSE 0
       END AS waits
  FROM listed
  JOIN holdfast_workers w ON w.id = $7
  LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = listed.lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
  LEFT JOIN holdfast_lanes l
    ON l.id = listed.lane
   AND w.enabled
   AND ($4::text[] IS NULL OR l.queue = ANY($4::text[]))
   AND ($5::text[] IS NULL OR l.type = ANY($5::text[]))
   AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t))
   AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS r WHERE r.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
   AND NOT head.hooked
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant;
