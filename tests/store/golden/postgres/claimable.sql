WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > 0
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > walk.lane), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
)
SELECT w.enabled,
       coalesce($1::timestamptz, statement_timestamp()) AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = walk.lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE NOT head.hooked
                  AND ($2::text[] IS NULL OR l.queue = ANY($2::text[]))
                  AND ($3::text[] IS NULL OR l.type = ANY($3::text[]))
                  AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t))
                  AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS r WHERE r.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
                  AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)
              )
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = 100 AND walk.lane IS NOT NULL) AS due,
       (SELECT min(at) FROM (SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'waiting' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at UNION ALL SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'retrying' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at) AS firsts) AS next_at,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE ($2::text[] IS NULL OR holdfast_jobs.queue = ANY($2::text[]))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= coalesce($1::timestamptz, statement_timestamp())) AS lost
  FROM holdfast_workers w
 WHERE w.id = $4;
