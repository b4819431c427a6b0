WITH picked AS MATERIALIZED (
    SELECT best.place, best.id
      FROM unnest($1::bigint[], $2::smallint[], $3::float8[], $4::integer[]) AS wanted(lane, floor, waits, most)
      CROSS JOIN LATERAL (SELECT place, id FROM (SELECT r.ctid AS place, r.id FROM holdfast_ready r JOIN holdfast_jobs ON holdfast_jobs.id = r.id WHERE r.lane = wanted.lane AND r.priority >= wanted.floor AND (r.run_at <= (coalesce($5::timestamptz, statement_timestamp()) - (wanted.waits) * interval '1 second') OR r.run_at > (coalesce($5::timestamptz, statement_timestamp()) + (5) * interval '1 second')) AND holdfast_jobs.attempt < holdfast_jobs.max_attempts AND holdfast_jobs.needs IS NULL AND (CAST($6 AS bigint) IS NULL OR $6 = (SELECT min(lane) FROM holdfast_ready) AND $6 = (SELECT max(lane) FROM holdfast_ready) AND (SELECT enabled FROM holdfast_workers WHERE id = $7) AND NOT EXISTS (SELECT 1 FROM holdfast_lanes l JOIN holdfast_queues q ON q.tenant = l.tenant AND q.name = l.queue WHERE l.id = $6 AND q.paused_at IS NOT NULL)) AND holdfast_jobs.due ORDER BY r.priority DESC, r.id LIMIT 100 FOR UPDATE OF holdfast_jobs SKIP LOCKED) AS first LIMIT wanted.most) AS best LIMIT $8
), taken AS (
    DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM picked))
),
moved AS (
UPDATE holdfast_jobs
   SET came_from        = state,
       state            = 'running',
       reason           = NULL,
       due              = NULL,
       version = holdfast_jobs.version + 1, moved_by = $9, pos = greatest(holdfast_jobs.pos, (SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log)),
       epoch            = epoch + 1,
       attempt          = attempt + 1,
       lease_worker     = $7,
       lease_instance   = $10,
       lease_token      = ($11 || lpad(to_hex(uuid_hash_extended(holdfast_jobs.id, 0) & 281474976710655), 12, '0'))::uuid,
       lease_expires_at = (coalesce($5::timestamptz, statement_timestamp()) + (lease_seconds) * interval '1 second'),
       claimed_at       = coalesce($5::timestamptz, statement_timestamp()),
       started_at       = coalesce(started_at, coalesce($5::timestamptz, statement_timestamp())),
       progress_at      = NULL,
       percent          = NULL,
       step             = NULL,
       updated_at       = coalesce($5::timestamptz, statement_timestamp())
 WHERE id = ANY (ARRAY(SELECT id FROM picked))
   AND state IN ('queued', 'retrying')
   AND due
   AND holdfast_jobs.needs IS NULL
RETURNING holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.tenant, holdfast_jobs.type, holdfast_jobs.queue, holdfast_jobs.lifecycle, holdfast_jobs.priority, holdfast_jobs.epoch, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.lost, holdfast_jobs.lease_expires_at, holdfast_jobs.claimed_at, holdfast_jobs.created_at, holdfast_jobs.run_at, holdfast_jobs.payload, holdfast_jobs.checkpoint, holdfast_jobs.tags, holdfast_jobs.trace, holdfast_jobs.policy, holdfast_jobs.version, holdfast_jobs.came_from, holdfast_jobs.state, holdfast_jobs.reason, holdfast_jobs.updated_at, holdfast_jobs.cancel_requested_at, holdfast_jobs.pos
),
history0 AS (INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason, instance, token, pos) SELECT id, version, tenant, coalesce($5::timestamptz, statement_timestamp()), 'claim', came_from, 'running', attempt, epoch, $9, $7, NULL, $10, lease_token, pos FROM moved WHERE TRUE AND TRUE),
batch AS (INSERT INTO holdfast_claim_batches (claimed_at, ids) SELECT coalesce($5::timestamptz, statement_timestamp()), array_agg(id) FROM moved HAVING count(*) > 0)
SELECT id, lease_token, tenant, type, queue, lifecycle, priority, epoch, attempt, max_attempts, lost, lease_expires_at, claimed_at, created_at, run_at, payload, checkpoint, tags, trace, policy, version, came_from, state, reason, updated_at, cancel_requested_at FROM moved;
