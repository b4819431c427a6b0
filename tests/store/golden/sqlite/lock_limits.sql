SELECT asked.bucket, m.concurrency, m.rate, m.burst, TRUE AS locked
  FROM (SELECT value->>0 AS bucket, value->>1 AS name FROM json_each(:asked)) AS asked
  JOIN holdfast_limits m ON m.name = coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = asked.bucket), asked.name);
