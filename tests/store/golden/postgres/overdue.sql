SELECT w.enabled,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND holdfast_jobs.needs IS NULL ORDER BY run_at LIMIT 1) <= coalesce($1::timestamptz, statement_timestamp()) AS ripe,
       EXISTS (SELECT 1 FROM holdfast_jobs
                WHERE state = 'running'
                  AND ($2::text[] IS NULL OR holdfast_jobs.queue = ANY($2::text[]))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= coalesce($1::timestamptz, statement_timestamp())) AS lost
  FROM holdfast_workers w
 WHERE w.id = $3;
