INSERT OR IGNORE INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
VALUES (:id, :tenant, :type, :queue, (SELECT id FROM holdfast_lanes WHERE id = :lane AND digest = :lane_digest), :lifecycle,
        (SELECT id
           FROM holdfast_policies
          WHERE id = :policy
            AND digest = :policy_digest
            AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = :type AND t.needs IS NOT NULL)),
        :moves, 'queued', :actor, TRUE, 0, 1, 0, :max_attempts, :now, :now, :now, :lease_seconds, :late_writes,
        :payload);

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) VALUES (:id, 1, :tenant, :now, 'create', NULL, 'queued', 0, 0, :actor, NULL, NULL);
