INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
SELECT fresh.id, :tenant, :type, :queue, CAST(:lane AS bigint), :lifecycle, CAST(:policy AS integer),
       CAST(:moves AS integer), 'queued', :actor, TRUE, 0, 1, 0, CAST(:max_attempts AS integer), :now, :now, :now,
       CAST(:lease_seconds AS float8), CAST(:late_writes AS boolean), fresh.payload
  FROM (SELECT value->>0 AS id, value->>1 AS payload FROM json_each(:fresh)) AS fresh
 WHERE (SELECT digest FROM holdfast_lanes WHERE id = :lane) = :lane_digest
   AND (SELECT digest FROM holdfast_policies WHERE id = :policy) = :policy_digest
   AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = :type AND t.needs IS NOT NULL)
RETURNING holdfast_jobs.id, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.attempt, holdfast_jobs.epoch, holdfast_jobs.priority, holdfast_jobs.updated_at, holdfast_jobs.lease_expires_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.claimed_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 1, tenant, updated_at, 'create', NULL, state, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
