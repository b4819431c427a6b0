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
SELECT listed.lane AS id, l.tenant, l.type, l.queue, l.limits, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky, CASE WHEN EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o)) AND EXISTS (SELECT 1 FROM holdfast_workers other WHERE other.enabled AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(other.tenants::json) AS t)) AND other.last_heartbeat_at >= (coalesce($6::timestamptz, statement_timestamp()) - (2 * other.heartbeat_seconds) * interval '1 second') AND other.liveness <> 'offline' AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o)) AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id)) THEN l.defer_seconds ELSE 0 END AS waits, (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name)) AS limited, EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NOT NULL) AS keyed,
       NULL AS lane, NULL AS bucket, NULL AS turn_at
  FROM listed
  JOIN holdfast_workers w ON w.id = $7
  LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = listed.lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
  LEFT JOIN holdfast_lanes l ON l.id = listed.lane AND w.enabled AND ($4::text[] IS NULL OR l.queue = ANY($4::text[])) AND ($5::text[] IS NULL OR l.type = ANY($5::text[])) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR least(wanted.units, m.burst) > least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($6::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o)) AND NOT head.hooked
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant;
