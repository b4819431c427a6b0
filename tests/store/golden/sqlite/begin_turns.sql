INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
SELECT turn.lane, turn.key_lane, turn.bucket,
       CASE WHEN NOT turn.shut THEN :now WHEN NOT turn.used_up THEN (:now + CAST((turn.seconds) * 1000000 AS INTEGER)) END, coalesce(turn.since, :now)
  FROM (SELECT next.lane, next.key_lane, next.bucket, next.since, CASE WHEN m.rate > 0 THEN max(0, (1 - min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst))) / m.rate) END AS seconds,
               coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = next.bucket), FALSE) AS used_up, (coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = next.bucket), FALSE) OR coalesce(min(m.burst, coalesce(k.tokens + m.rate * max(0, (:now - k.filled_at) / 1000000.0), m.burst)) + 1e-06 * (1 + m.rate) < 1, FALSE)) AS shut
          FROM (SELECT value->>0 AS lane, value->>1 AS key_lane, value->>2 AS bucket, value->>3 AS since FROM json_each(:next)) AS next
          JOIN holdfast_lanes l ON l.id = next.lane
          LEFT JOIN holdfast_limits m ON m.name = CASE WHEN next.bucket IS NOT NULL THEN coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = next.bucket), 'key:' || l.type) END LEFT JOIN holdfast_limit_tokens k ON k.bucket = next.bucket
         WHERE EXISTS (SELECT 1 FROM holdfast_ready r WHERE r.lane = next.key_lane)) AS turn
RETURNING key_lane;
