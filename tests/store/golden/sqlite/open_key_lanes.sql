WITH RECURSIVE keyed(lane, nth) AS (
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > :after), 1
     UNION ALL
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > keyed.lane), keyed.nth + 1
      FROM keyed
     WHERE keyed.lane IS NOT NULL AND keyed.nth < 100
),
listed AS (
    SELECT keyed.lane FROM keyed WHERE keyed.lane IS NOT NULL AND NOT :named
     UNION ALL
    SELECT matching.id
      FROM (SELECT l.id
              FROM holdfast_lanes l
             WHERE :named
               AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
               AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
               AND l.id > :after
               AND EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = l.id AND k.turn_at <= :now LIMIT 1 OFFSET 0)
             ORDER BY l.id
             LIMIT 100) AS matching
)
SELECT turn.value->>0 AS id, l.tenant, CASE WHEN head.id IS NULL OR NOT head.hooked THEN l.type END AS type, l.queue, l.limits, head.priority, head.id AS head, head.hooked, t.weight,
       l.prefers <> '[]' AS picky, CASE WHEN EXISTS (SELECT 1 FROM json_each(l.prefers) AS i WHERE i.value NOT IN (SELECT value FROM json_each(w.offers) AS o)) AND EXISTS (SELECT 1 FROM holdfast_workers other WHERE other.enabled AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(other.tenants) AS t)) AND other.last_heartbeat_at >= (:now - CAST((2 * other.heartbeat_seconds) * 1000000 AS INTEGER)) AND other.liveness <> 'offline' AND NOT EXISTS (SELECT 1 FROM json_each(l.prefers) AS i WHERE i.value NOT IN (SELECT value FROM json_each(other.offers) AS o)) AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS i WHERE i.value NOT IN (SELECT value FROM json_each(other.offers) AS o)) AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id)) THEN l.defer_seconds ELSE 0 END AS waits, TRUE AS limited, TRUE AS keyed,
       listed.lane, turn.value->>1 AS bucket, turn.value->>2 AS turn_at, turn.value->>3 AS since, (coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = turn.value->>1), FALSE) OR coalesce(min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) + 1e-06 * (1 + m.rate) < 1, FALSE)) AS shut
  FROM listed
  JOIN holdfast_workers w ON w.id = :worker
  LEFT JOIN holdfast_lanes l ON l.id = listed.lane AND w.enabled AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types))) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR min(wanted.units, m.burst) > min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t)) AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS i WHERE i.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
  LEFT JOIN json_each((SELECT json_group_array(json_array(key_lane, bucket, turn_at, since)) FROM (SELECT k.key_lane, k.bucket, k.turn_at, coalesce(k.since, k.turn_at) AS since FROM holdfast_key_lanes k WHERE k.lane = listed.lane AND k.turn_at <= :now AND NOT EXISTS (SELECT 1 FROM holdfast_key_lanes newer WHERE newer.key_lane = k.key_lane AND newer.turn_at > k.turn_at AND newer.turn_at <= :now) ORDER BY k.turn_at, k.since LIMIT :most))) AS turn ON l.id IS NOT NULL
  LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = turn.value->>0 ORDER BY r.priority DESC, r.id LIMIT 1)
  LEFT JOIN holdfast_limits m ON m.name = CASE WHEN turn.value->>1 IS NOT NULL THEN coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = turn.value->>1), 'key:' || l.type) END LEFT JOIN holdfast_limit_tokens k ON k.bucket = turn.value->>1
  LEFT JOIN holdfast_tenants t ON t.name = l.tenant;
