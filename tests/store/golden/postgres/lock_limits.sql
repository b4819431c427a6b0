SELECT asked.bucket, m.concurrency, m.rate, m.burst, pg_try_advisory_xact_lock(hashtextextended('holdfast:limit:' || asked.bucket, 0)) AS locked
  FROM unnest($1::text[], $2::text[]) AS asked(bucket, name)
  JOIN holdfast_limits m ON m.name = coalesce((SELECT one.name FROM holdfast_limits one WHERE one.name = asked.bucket), asked.name);
