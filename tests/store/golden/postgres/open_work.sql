WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > 0
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > walk.lane), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
),
listed AS (
    SELECT walk.lane FROM walk WHERE walk.lane IS NOT NULL
     UNION
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE EXISTS (SELECT 1 FROM walk WHERE walk.nth = 100 AND walk.lane IS NOT NULL)
               AND ($1::text[] IS NULL OR l.queue = ANY($1::text[]))
               AND ($2::text[] IS NULL OR l.type = ANY($2::text[]))
             ORDER BY l.id
             LIMIT 100) AS matching
)
SELECT l.tenant, l.queue, l.type, l.requires, l.prefers,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_ready r WHERE r.lane = l.id LIMIT 100) AS first) AS ready
  FROM listed
  LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = listed.lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
  JOIN holdfast_lanes l ON l.id = listed.lane
 WHERE NOT head.hooked
   AND ($1::text[] IS NULL OR l.queue = ANY($1::text[])) AND ($2::text[] IS NULL OR l.type = ANY($2::text[])) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR least(wanted.units, m.burst) > least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($3::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate)));
