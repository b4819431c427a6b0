WITH RECURSIVE walk(lane, nth) AS (
    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > 0
     UNION ALL
    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > walk.lane), walk.nth + 1
      FROM walk
     WHERE walk.lane IS NOT NULL AND walk.nth < 100
),
keyed(lane, nth) AS (
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > 0), 1
     UNION ALL
    SELECT (SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane > keyed.lane), keyed.nth + 1
      FROM keyed
     WHERE keyed.lane IS NOT NULL AND keyed.nth < 100
)
SELECT w.enabled,
       :now AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = walk.lane ORDER BY r.priority DESC, r.id LIMIT 1)
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE NOT head.hooked
                  AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types))) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR min(wanted.units, m.burst) > min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t)) AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS i WHERE i.value NOT IN (SELECT value FROM json_each(w.offers) AS o)))
       OR EXISTS (SELECT 1
                    FROM keyed
                    JOIN holdfast_lanes l ON l.id = keyed.lane
                   WHERE (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types))) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR min(wanted.units, m.burst) > min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t)) AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS i WHERE i.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
                     AND EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at <= :now LIMIT 1 OFFSET 0))
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = 100 AND walk.lane IS NOT NULL)
       OR EXISTS (SELECT 1 FROM keyed WHERE keyed.nth = 100 AND keyed.lane IS NOT NULL) AS due,
       (SELECT min(at) FROM (SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'waiting' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at UNION ALL SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'retrying' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at) AS firsts) AS next_at,
       (SELECT min((SELECT min(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at > :now)) FROM keyed JOIN holdfast_lanes l ON l.id = keyed.lane WHERE (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))) AS next_turn_at,
       (SELECT min(waits.seconds) FROM (SELECT (SELECT max((min(wanted.units, m.burst) - min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst))) / m.rate) FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.rate > 0 AND min(wanted.units, m.burst) - min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) > 1e-06 * (1 + m.rate)) AS seconds FROM walk AS lanes JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits) AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types))) UNION ALL SELECT (SELECT max((min(wanted.units, m.burst) - min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst))) / m.rate) FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.rate > 0 AND min(wanted.units, m.burst) - min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) > 1e-06 * (1 + m.rate)) AS seconds FROM keyed AS lanes JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits) AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues))) AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))) AS waits) AS tokens_in,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker;
