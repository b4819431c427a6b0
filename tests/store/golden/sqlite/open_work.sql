SELECT l.tenant, l.queue, l.type, l.requires, l.prefers,
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs r WHERE r.due AND r.lane = l.id LIMIT 100) AS first) AS ready
  FROM holdfast_lanes l
 WHERE (SELECT j.needs IS NULL FROM holdfast_jobs j WHERE j.due AND j.lane = l.id LIMIT 1)
   AND (:queues IS NULL OR l.queue IN (SELECT value FROM json_each(:queues)))
   AND (:types IS NULL OR l.type IN (SELECT value FROM json_each(:types)))
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL)
 LIMIT 100;
