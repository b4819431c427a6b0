SELECT w.enabled,
       coalesce($1::timestamptz, statement_timestamp()) AS seen_at,
       EXISTS (SELECT 1
                 FROM holdfast_lanes l
                WHERE (SELECT j.needs IS NULL FROM holdfast_jobs j WHERE j.due AND j.lane = l.id LIMIT 1)
                  AND ($2::text[] IS NULL OR l.queue = ANY($2::text[]))
                  AND ($3::text[] IS NULL OR l.type = ANY($3::text[]))
                  AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t))
                  AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS r WHERE r.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o))
                  AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
              ) AS due,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND holdfast_jobs.needs IS NULL ORDER BY run_at LIMIT 1) AS next_at,
       EXISTS (SELECT 1 FROM holdfast_jobs
                WHERE state = 'running'
                  AND ($2::text[] IS NULL OR holdfast_jobs.queue = ANY($2::text[]))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= coalesce($1::timestamptz, statement_timestamp())) AS lost
  FROM holdfast_workers w
 WHERE w.id = $4;
