WITH picked AS MATERIALIZED (
    SELECT id
      FROM (SELECT id
              FROM jobs
             WHERE due
               AND lane = :lane
               AND priority >= :floor
               AND (run_at <= (:now - CAST((:waits) * 1000000 AS INTEGER)) OR run_at > (:now + CAST((5) * 1000000 AS INTEGER)))
               AND attempt < max_attempts
               AND jobs.needs IS NULL
             ORDER BY priority DESC, id
             LIMIT 100
            ) AS best
     LIMIT :most
)
UPDATE jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = jobs.version + 1,
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = :worker,
       lease_instance   = :instance,
       lease_token      = new_token(),
       lease_expires_at = (:now + CAST((lease_seconds) * 1000000 AS INTEGER)),
       claimed_at       = :now,
       started_at       = coalesce(started_at, :now),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = :now
 WHERE id IN (SELECT id FROM picked)
   AND state IN ('queued', 'retrying')
RETURNING jobs.id, jobs.lease_token, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.priority, jobs.epoch, jobs.attempt, jobs.max_attempts, jobs.lost, jobs.lease_expires_at, jobs.claimed_at, jobs.created_at, jobs.run_at, jobs.payload, jobs.checkpoint, jobs.tags, jobs.trace, jobs.policy, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.updated_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'claim', came_from, state, attempt, epoch, :actor, lease_worker, reason FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
