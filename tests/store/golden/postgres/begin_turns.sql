INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
SELECT turn.lane, turn.key_lane, turn.bucket,
       CASE WHEN NOT turn.shut THEN coalesce($1::timestamptz, statement_timestamp()) WHEN NOT turn.used_up THEN (coalesce($1::timestamptz, statement_timestamp()) + (turn.seconds) * interval '1 second') END, coalesce(turn.since, coalesce($1::timestamptz, statement_timestamp()))
  FROM (SELECT next.lane, next.key_lane, next.bucket, next.since, CASE WHEN m.rate > 0 THEN greatest(0, (1 - least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst))) / m.rate) END AS seconds,
               coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = next.bucket), FALSE) AS used_up, (coalesce(m.concurrency <= (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = next.bucket), FALSE) OR coalesce(least(m.burst, coalesce(k.tokens + m.rate * greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8, m.burst)) + 1e-06 * (1 + m.rate) < 1, FALSE)) AS shut
          FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[]) AS next(lane, key_lane, bucket, since)
          JOIN holdfast_lanes l ON l.id = next.lane
          LEFT JOIN holdfast_limits m ON m.name = CASE WHEN next.bucket IS NOT NULL THEN coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = next.bucket), 'key:' || l.type) END LEFT JOIN holdfast_limit_tokens k ON k.bucket = next.bucket
         WHERE EXISTS (SELECT 1 FROM holdfast_ready r WHERE r.lane = next.key_lane)) AS turn
RETURNING key_lane;
