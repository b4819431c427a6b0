WITH picked AS MATERIALIZED (
    SELECT best.value AS id
      FROM (SELECT value->>0 AS lane, value->>1 AS floor, value->>2 AS ceiling, value->>3 AS waits, value->>4 AS most FROM json_each(:wanted)) AS wanted
      JOIN json_each(CASE WHEN (NOT :unread OR EXISTS (SELECT 1 FROM holdfast_lanes l JOIN holdfast_workers w ON w.id = :worker WHERE l.id = wanted.lane AND w.enabled AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each(l.limits) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name)) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_each(w.tenants) AS t)) AND NOT EXISTS (SELECT 1 FROM json_each(l.requires) AS i WHERE i.value NOT IN (SELECT value FROM json_each(w.offers) AS o)) LIMIT 1 OFFSET 0)) AND (CAST(:only AS bigint) IS NULL OR NOT ((SELECT min(lane) FROM holdfast_ready WHERE lane > 0 AND lane < :only) IS NOT NULL OR (SELECT max(lane) FROM holdfast_ready WHERE lane > :only) IS NOT NULL OR EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NOT NULL))) THEN (SELECT json_group_array(id) FROM (SELECT r.id FROM holdfast_ready r JOIN holdfast_jobs ON holdfast_jobs.id = r.id WHERE r.lane = wanted.lane AND r.priority BETWEEN wanted.floor AND wanted.ceiling AND (r.run_at <= (:now - CAST((wanted.waits) * 1000000 AS INTEGER)) OR r.run_at > (:now + CAST((5) * 1000000 AS INTEGER))) AND holdfast_jobs.attempt < holdfast_jobs.max_attempts AND holdfast_jobs.needs IS NULL ORDER BY r.priority DESC, r.id LIMIT :most)) END) AS best ON best.key < wanted.most
)
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = holdfast_jobs.version + 1, moved_by = :actor,
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = :worker,
       lease_instance   = :instance,
       lease_token      = :token_prefix || substr(holdfast_new_token(), -12),
       limited          = :limited,
       lease_expires_at = (:now + CAST((lease_seconds) * 1000000 AS INTEGER)),
       claimed_at       = :now,
       started_at       = coalesce(started_at, :now),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = :now
 WHERE id IN (SELECT id FROM picked)
   AND state IN ('queued', 'retrying')
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.priority, holdfast_jobs.epoch, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.lost, holdfast_jobs.lease_expires_at, holdfast_jobs.claimed_at, holdfast_jobs.created_at, holdfast_jobs.run_at, holdfast_jobs.payload, holdfast_jobs.checkpoint, holdfast_jobs.tags, holdfast_jobs.trace, holdfast_jobs.policy, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.updated_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, instance, token) SELECT id, version, tenant, updated_at, 'claim', came_from, state, attempt, epoch, moved_by, lease_worker, reason, lease_instance, lease_token FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
