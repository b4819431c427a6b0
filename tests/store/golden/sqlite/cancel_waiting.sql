UPDATE jobs
   SET came_from           = state,
       state               = 'canceled',
       reason              = :reason,
       due                 = NULL,
       version = jobs.version + 1,
       cancel_requested_at = :now,
       finished_at         = :now,
       updated_at          = :now
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state IN ('created', 'queued', 'retrying')
   AND jobs.needs IS NULL
RETURNING jobs.id, jobs.tenant, jobs.type, jobs.queue, jobs.lifecycle, jobs.version, jobs.came_from, jobs.state, jobs.reason, jobs.attempt, jobs.epoch, jobs.priority, jobs.updated_at, jobs.lease_expires_at, jobs.cancel_requested_at, jobs.last_claimed_at, jobs.rowid;

INSERT INTO events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, data) SELECT id, version, tenant, updated_at, 'cancel', came_from, state, attempt, epoch, :actor, lease_worker, reason, '{"control": "system.cancel"}' FROM jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
