WITH picked AS MATERIALIZED (
    SELECT best.place, best.id
      FROM unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::float8[], $5::integer[]) AS wanted(lane, floor, ceiling, waits, most)
      CROSS JOIN LATERAL (SELECT place, id FROM (SELECT r.ctid AS place, r.id FROM holdfast_ready r JOIN holdfast_jobs ON holdfast_jobs.id = r.id WHERE r.lane = wanted.lane AND r.priority BETWEEN wanted.floor AND wanted.ceiling AND (r.run_at <= (coalesce($6::timestamptz, statement_timestamp()) - (wanted.waits) * interval '1 second') OR r.run_at > (coalesce($6::timestamptz, statement_timestamp()) + (5) * interval '1 second')) AND holdfast_jobs.attempt < holdfast_jobs.max_attempts AND holdfast_jobs.needs IS NULL AND (NOT $7 OR EXISTS (SELECT 1 FROM holdfast_lanes l JOIN holdfast_workers w ON w.id = $8 WHERE l.id = wanted.lane AND w.enabled AND NOT (EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 FROM (SELECT 'type:' || l.type AS name, 1 AS units UNION ALL SELECT 'queue:' || l.queue AS name, 1 AS units UNION ALL SELECT 'tenant:' || l.tenant AS name, 1 AS units UNION ALL SELECT p.key, CAST(p.value AS integer) FROM json_each_text(l.limits::json) AS p) AS wanted JOIN holdfast_limits m ON m.name = wanted.name)) AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0) AND (w.tenants IS NULL OR l.tenant IN (SELECT value FROM json_array_elements_text(w.tenants::json) AS t)) AND NOT EXISTS (SELECT 1 FROM json_array_elements_text(l.requires::json) AS i WHERE i.value NOT IN (SELECT value FROM json_array_elements_text(w.offers::json) AS o)) LIMIT 1 OFFSET 0)) AND (CAST($9 AS bigint) IS NULL OR NOT ((SELECT min(lane) FROM holdfast_ready WHERE lane > 0 AND lane < $9) IS NOT NULL OR (SELECT max(lane) FROM holdfast_ready WHERE lane > $9) IS NOT NULL OR EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NOT NULL))) AND holdfast_jobs.due ORDER BY r.priority DESC, r.id LIMIT 100 FOR UPDATE OF holdfast_jobs SKIP LOCKED) AS first LIMIT wanted.most) AS best LIMIT $10
), taken AS (
    DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM picked))
),
moved AS (
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = holdfast_jobs.version + 1, moved_by = $11, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = $8,
       lease_instance   = $12,
       lease_token      = ($13 || lpad(to_hex(uuid_hash_extended(holdfast_jobs.id, 0) & 281474976710655), 12, '0'))::uuid,
       limited          = $14,
       lease_expires_at = (coalesce($6::timestamptz, statement_timestamp()) + (lease_seconds) * interval '1 second'),
       claimed_at       = coalesce($6::timestamptz, statement_timestamp()),
       started_at       = coalesce(started_at, coalesce($6::timestamptz, statement_timestamp())),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = coalesce($6::timestamptz, statement_timestamp())
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND state IN ('queued', 'retrying')
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.priority, holdfast_jobs.epoch, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.lost, holdfast_jobs.lease_expires_at, holdfast_jobs.claimed_at, holdfast_jobs.created_at, holdfast_jobs.run_at, holdfast_jobs.payload, holdfast_jobs.checkpoint, holdfast_jobs.tags, holdfast_jobs.trace, holdfast_jobs.policy, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.updated_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, instance, token, pos) SELECT id, version, tenant, coalesce($6::timestamptz, statement_timestamp()), 'claim', came_from, 'running', attempt, epoch, $11, $8, NULL, $12, lease_token, pos FROM moved WHERE TRUE AND TRUE),
batch AS (INSERT INTO holdfast_claim_batches (claimed_at, expires_at, worker, instance, ids) SELECT coalesce($6::timestamptz, statement_timestamp()), min(lease_expires_at), $8, $12, array_agg(id) FROM moved HAVING count(*) > 0)
SELECT id, lease_token, tenant, type, queue, lifecycle, priority, epoch, attempt, max_attempts, lost, lease_expires_at, claimed_at, created_at, run_at, payload, checkpoint, tags, trace, policy, version, came_from, state, reason, updated_at, cancel_requested_at FROM moved;
