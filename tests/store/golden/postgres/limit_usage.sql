SELECT asked.bucket,
       (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = asked.bucket) AS used,
       k.tokens, greatest(0, extract(epoch FROM coalesce($1::timestamptz, statement_timestamp()) - k.filled_at))::float8 AS idle, coalesce($1::timestamptz, statement_timestamp()) AS counted_at
  FROM unnest($2::text[]) AS asked(bucket)
  LEFT JOIN holdfast_limit_tokens k ON k.bucket = asked.bucket;
