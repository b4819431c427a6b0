SELECT w.enabled,
       :now AS seen_at,
       EXISTS (SELECT 1
                 FROM holdfast_lanes l
                WHERE (SELECT j.needs IS NULL FROM holdfast_jobs j WHERE j.due AND j.lane = l.id LIMIT 1)
                  AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
                  AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
                  AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t))
                  AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS r WHERE r.value NOT IN (SELECT value FROM json_each(w.offers) AS o))
                  AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
              ) AS due,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND holdfast_jobs.needs IS NULL ORDER BY run_at LIMIT 1) AS next_at,
       EXISTS (SELECT 1 FROM holdfast_jobs
                WHERE state = 'running'
                  AND (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker;
