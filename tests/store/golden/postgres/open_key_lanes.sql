WITH RECURSIVE keyed(lane, nth) AS (
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > $1), 1
     UNION ALL
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > keyed.lane), keyed.nth + 1
      FROM keyed
     WHERE keyed.lane IS NOT NULL AND keyed.nth < 100
),
listed AS (
    SELECT keyed.lane FROM keyed WHERE keyed.lane IS NOT NULL AND NOT $2
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE $2
               AND ($3::text[] IS NULL OR l.queue = ANY($3::text[]))
               AND ($4::text[] IS NULL OR l.type = ANY($4::text[]))
               AND l.id > $1
               AND EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = l.id AND k.turn_at <= coalesce($5::timestamptz, statement_timestamp()) LIMIT 1 OFFSET 0)
             ORDER BY l.id
             LIMIT 100) AS matching
)
SELECT turn.key_lane AS id, l.tenant, CASE WHEN head.id IS NULL OR NOT head.hooked THEN l.type END AS type, l.queue, l.limits, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky, CASE WHEN EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o)) AND EXISTS (SELECT 1 FROM holdfast_workers other WHERE other.enabled AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(other.tenants::json) AS t)) AND other.last_heartbeat_at >= (coalesce($5::timestamptz, statement_timestamp()) - (2 * other.heartbeat_seconds) * interval '1 second') AND other.liveness <> 'offline' AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.prefers::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(other.offers::json) AS o)) AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id)) THEN l.defer_seconds ELSE 0 END AS waits, TRUE AS limited, TRUE AS keyed,
       listed.lane, turn.bucket AS bucket, turn.turn_at AS turn_at, turn.since AS since, (coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = turn.bucket), FALSE) OR coalesce(least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($5::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate) < 1, FALSE)) AS shut
  FROM listed
  JOIN holdfast_workers w ON w.id = $6
  LEFT JOIN holdfast_lanes l ON l.id = listed.lane AND w.enabled AND ($3::text[] IS NULL OR l.queue = ANY($3::text[])) AND ($4::text[] IS NULL OR l.type = ANY($4::text[])) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR least(wanted.units, m.burst) > least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($5::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
  LEFT JOIN LATERAL (SELECT k.key_lane, k.bucket, k.turn_at, coalesce(k.since, k.turn_at) AS since FROM holdfast_key_lanes k WHERE k.lane = listed.lane AND k.turn_at <= coalesce($5::timestamptz, statement_timestamp()) AND NOT EXISTS (SELECT 1 FROM holdfast_key_lanes newer WHERE newer.key_lane = k.key_lane AND newer.turn_at > k.turn_at AND newer.turn_at <= coalesce($5::timestamptz, statement_timestamp())) ORDER BY k.turn_at, k.since LIMIT $7) AS turn ON l.id IS NOT NULL
  LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = turn.key_lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
  LEFT JOIN holdfast_limits m ON m.name = CASE WHEN turn.bucket IS NOT NULL THEN coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = turn.bucket), 'key:' || l.type) END LEFT JOIN holdfast_limit_tokens k ON k.bucket = turn.bucket
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant;
