SELECT w.enabled,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= :now AND holdfast_jobs.needs IS NULL) AS ripe,
       EXISTS (SELECT 1 FROM holdfast_running AS holdfast_jobs
                WHERE (:queues IS NULL OR holdfast_jobs.queue IN (SELECT value FROM json_each(:queues)))
                  AND holdfast_jobs.needs IS NULL
                  AND lease_expires_at <= :now) AS lost
  FROM holdfast_workers w
 WHERE w.id = :worker;
