WITH picked AS MATERIALIZED (
    SELECT id
      FROM (SELECT id
              FROM holdfast_jobs
             WHERE due
               AND lane = :lane
               AND priority >= :floor
               AND (run_at <= (:now - CAST((:waits) * 1000000 AS INTEGER)) OR run_at > (:now + CAST((5) * 1000000 AS INTEGER)))
               AND attempt < max_attempts
               AND holdfast_jobs.needs IS NULL
             ORDER BY priority DESC, id
             LIMIT 100
            ) AS best
     LIMIT :most
)
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = holdfast_jobs.version + 1,
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = :worker,
       lease_instance   = :instance,
       lease_token      = holdfast_new_token(),
       lease_expires_at = (:now + CAST((lease_seconds) * 1000000 AS INTEGER)),
       claimed_at       = :now,
       started_at       = coalesce(started_at, :now),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = :now
 WHERE id IN (SELECT id FROM picked)
   AND state IN ('queued', 'retrying')
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.priority, holdfast_jobs.epoch, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.lost, holdfast_jobs.lease_expires_at, holdfast_jobs.claimed_at, holdfast_jobs.created_at, holdfast_jobs.run_at, holdfast_jobs.payload, holdfast_jobs.checkpoint, holdfast_jobs.tags, holdfast_jobs.trace, holdfast_jobs.policy, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.updated_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.last_claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, version, tenant, updated_at, 'claim', came_from, state, attempt, epoch, :actor, lease_worker, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
