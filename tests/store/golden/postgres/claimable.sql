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
       coalesce($1::timestamptz, statement_timestamp()) AS seen_at,
       EXISTS (SELECT 1
                 FROM walk
                 LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = walk.lane ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE
                 JOIN holdfast_lanes l ON l.id = walk.lane
                WHERE NOT head.hooked
                  AND ($2::text[] IS NULL OR l.queue = ANY($2::text[])) AND ($3::text[] IS NULL OR l.type = ANY($3::text[])) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR least(wanted.units, m.burst) > least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o)))
       OR EXISTS (SELECT 1
                    FROM keyed
                    JOIN holdfast_lanes l ON l.id = keyed.lane
                   WHERE ($2::text[] IS NULL OR l.queue = ANY($2::text[])) AND ($3::text[] IS NULL OR l.type = ANY($3::text[])) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.concurrency < wanted.units + (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) OR least(wanted.units, m.burst) > least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate))) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
                     AND EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at <= coalesce($1::timestamptz, statement_timestamp()) LIMIT 1 OFFSET 0))
       OR EXISTS (SELECT 1 FROM walk WHERE walk.nth = 100 AND walk.lane IS NOT NULL)
       OR EXISTS (SELECT 1 FROM keyed WHERE keyed.nth = 100 AND keyed.lane IS NOT NULL) AS due,
       (SELECT min(at) FROM (SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'waiting' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at UNION ALL SELECT (SELECT parked_at FROM holdfast_jobs WHERE parked = 'retrying' AND holdfast_jobs.needs IS NULL ORDER BY parked_at LIMIT 1) AS at) AS firsts) AS next_at,
       (SELECT min((SELECT min(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at > coalesce($1::timestamptz, statement_timestamp()))) FROM keyed JOIN holdfast_lanes l ON l.id = keyed.lane WHERE ($2::text[] IS NULL OR l.queue = ANY($2::text[])) AND ($3::text[] IS NULL OR l.type = ANY($3::text[]))) AS next_turn_at,
       (SELECT min(waits.seconds) FROM (SELECT (SELECT max((least(wanted.units, m.burst) - least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst))) / m.rate) FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.rate > 0 AND least(wanted.units, m.burst) - least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) > 1e-06 * (1 + m.rate)) AS seconds FROM walk AS lanes JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits) AND ($2::text[] IS NULL OR l.queue = ANY($2::text[])) AND ($3::text[] IS NULL OR l.type = ANY($3::text[])) UNION ALL SELECT (SELECT max((least(wanted.units, m.burst) - least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst))) / m.rate) FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name WHERE m.rate > 0 AND least(wanted.units, m.burst) - least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) > 1e-06 * (1 + m.rate)) AS seconds FROM keyed AS lanes JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits) AND ($2::text[] IS NULL OR l.queue = ANY($2::text[])) AND ($3::text[] IS NULL OR l.type = ANY($3::text[]))) AS waits) AS tokens_in,
       EXISTS (SELECT 1 FROM (SELECT * FROM holdfast_jobs WHERE state = 'running' AND id = ANY (ARRAY(SELECT unnest(ids) FROM holdfast_claim_batches WHERE expires_at <= coalesce($1::timestamptz, statement_timestamp()) OR claimed_at > coalesce($1::timestamptz, statement_timestamp())))) AS holdfast_jobs
                WHERE ($2::text[] IS NULL OR holdfast_jobs.queue = ANY($2::text[]))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= coalesce($1::timestamptz, statement_timestamp())) AS lost
  FROM holdfast_workers w
 WHERE w.id = $4;
