INSERT INTO holdfast_jobs (
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, moved_by, due, priority, version, pos, max_attempts,
    run_at, created_at, updated_at, lease_seconds, late_writes, payload)
SELECT fresh.id, ?, ?, ?, CAST(? AS bigint), ?, CAST(? AS integer),
       CAST(? AS integer), 'queued', ?, TRUE, 0, 1, 0, CAST(? AS integer), ?, ?, ?,
       CAST(? AS float8), CAST(? AS boolean), fresh.payload
  FROM (SELECT ? AS id, ? AS payload) AS fresh
 WHERE (SELECT digest FROM holdfast_lanes WHERE id = ?) = ?
   AND (SELECT digest FROM holdfast_policies WHERE id = ?) = ?
   AND NOT EXISTS (SELECT 1 FROM holdfast_job_types t WHERE t.name = ? AND t.needs IS NOT NULL)
RETURNING holdfast_jobs.id, holdfast_jobs.rowid;

INSERT INTO holdfast_events (job_id, seq, tenant, at, verb, from_state, to_state, attempt, epoch, actor, worker_id, reason) SELECT id, 1, tenant, updated_at, 'create', NULL, state, attempt, epoch, moved_by, NULL, reason FROM holdfast_jobs WHERE rowid IN (SELECT value FROM json_each(:moved)) AND TRUE;
