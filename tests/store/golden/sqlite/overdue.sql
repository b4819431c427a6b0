SELECT w.enabled,
       (SELECT run_at FROM jobs WHERE NOT due AND jobs.needs IS NULL ORDER BY run_at LIMIT 1) <= :now AS ripe,
       EXISTS (SELECT 1 FROM jobs
                WHERE state = 'running'
                  AND (:queues IS NULL OR jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM workers w
 WHERE w.id = :worker;
