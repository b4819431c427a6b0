SELECT w.enabled,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= coalesce($1::timestamptz, statement_timestamp()) AND holdfast_jobs.needs IS NULL) AS ripe,
       EXISTS (SELECT 1 FROM (SELECT * FROM holdfast_jobs WHERE state = 'running' AND id = ANY (ARRAY(SELECT unnest(ids) FROM holdfast_claim_batches WHERE expires_at <= coalesce($1::timestamptz, statement_timestamp()) OR claimed_at > coalesce($1::timestamptz, statement_timestamp())))) AS holdfast_jobs
                WHERE ($2::text[] IS NULL OR holdfast_jobs.queue = ANY($2::text[]))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= coalesce($1::timestamptz, statement_timestamp())) AS lost
  FROM holdfast_workers w
 WHERE w.id = $3;
