WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = $1
       AND parked_at <= coalesce($2::timestamptz, statement_timestamp())
       AND (state = 'queued' OR moves & 4 <> 0)
       AND attempt < max_attempts
       AND NOT (state = 'queued' AND coalesce(reason, '') = 'waiting_for_children')
     ORDER BY parked_at
     LIMIT 100
    FOR UPDATE SKIP LOCKED
)
UPDATE holdfast_jobs
   SET due = TRUE
 WHERE id = ANY(ARRAY(SELECT id FROM ripe))
RETURNING id, queue, type, priority;
