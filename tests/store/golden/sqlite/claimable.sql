WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > 0
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > walk.lane), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
)
SELECT w.enabled,
       :now AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = walk.lane ORDER BY r.priority DESC, r.id LIMIT 1)
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE NOT head.hooked
                  AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
                  AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
                  AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t))
                  AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS r WHERE r.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
                  AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
              )
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = 100 AND walk.lane IS NOT NULL) AS due,
       (SELECT min(at) FROM (SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'waiting' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at UNION ALL SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'retrying' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at) AS firsts) AS next_at,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker;
