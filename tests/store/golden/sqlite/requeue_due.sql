WITH ripe AS MATERIALIZED (
    SELECT id
      FROM jobs
     WHERE NOT due
       AND run_at <= :now
       AND state = 'retrying'
       AND moves & 4 = 0
       AND attempt < max_attempts
       AND jobs.needs IS NULL
     ORDER BY run_at
     LIMIT 100
    
)
UPDATE jobs
   SET came_from  = state,
       state      = 'queued',
       due        = TRUE,
       version = jobs.version + 1,
       updated_at = :now
 WHERE id IN (SELECT id FROM ripe)
   AND state = 'retrying'
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'requeue', came_from, state, attempt, epoch, :actor, lease_worker, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
