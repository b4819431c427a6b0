WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = :parked
       AND parked_at <= :now
       AND (state = 'queued' OR moves & 4 <> 0)
       AND attempt < max_attempts
       AND NOT (state = 'queued' AND coalesce(reason, '') = 'waiting_for_children')
     ORDER BY parked_at
     LIMIT 100
    
)
UPDATE holdfast_jobs
   SET due = TRUE
 WHERE id IN (SELECT id FROM ripe)
RETURNING id, queue, type, priority;
