SELECT asked.bucket,
       (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = asked.bucket) AS used,
       k.tokens, max(0, (:now - k.filled_at) / 1000000.0) AS idle, :now AS counted_at
  FROM (SELECT value->>0 AS bucket FROM json_each(:asked)) AS asked
  LEFT JOIN holdfast_limit_tokens k ON k.bucket = asked.bucket;
