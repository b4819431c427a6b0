SELECT asked.bucket, asked.name, m.concurrency, m.rate, m.burst, pg_try_advisory_xact_lock(hashtextextended('holdfast:limit:' || asked.bucket, 0)) AS locked
  FROM unnest($1::text[], $2::text[]) AS asked(bucket, name)
  JOIN holdfast_limits m ON m.name = asked.name;
