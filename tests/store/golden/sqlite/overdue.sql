SELECT w.enabled,
       (SELECT run_at FROM holdfast_jobs WHERE NOT due AND holdfast_jobs.needs IS NULL ORDER BY run_at LIMIT 1) <= :now AS ripe,
       EXISTS (SELECT 1 FROM holdfast_jobs
                WHERE state = 'running'
                  AND (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker;
