WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = 'retrying'
       AND parked_at <= :now
       AND moves & 4 = 0
       AND attempt < max_attempts
       AND holdfast_jobs.needs IS NULL
     ORDER BY parked_at
     LIMIT 100
    
)
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = 'queued',
       due        = TRUE,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       updated_at = :now
 WHERE id IN (SELECT id FROM ripe)
   AND state = 'retrying'
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'requeue', came_from, state, attempt, epoch, moved_by, CASE WHEN state = 'running' THEN lease_worker END, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
