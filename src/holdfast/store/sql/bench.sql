-- Queries of `holdfast bench` about jobs of its own type.

-- name: bench_left
-- The number of unfinished jobs: waiting in their lanes, or running.
SELECT (SELECT count(*) FROM holdfast_ready r WHERE {lane of:r.lane} IN (SELECT l.id FROM holdfast_lanes l WHERE l.type = :type)) AS waiting,
       (SELECT count(*) FROM holdfast_running WHERE type = :type) AS running

-- name: bench_waiting
SELECT r.id FROM holdfast_ready r WHERE {lane of:r.lane} IN (SELECT l.id FROM holdfast_lanes l WHERE l.type = :type) ORDER BY r.id LIMIT {limit}

-- name: bench_done
-- From the first claim to the last completion. Ids are in creation order, so `id >= :first` skips older jobs.
SELECT count(*) AS jobs, min(claimed_at) AS begun_at, max(finished_at) AS ended_at
  FROM holdfast_jobs
 WHERE id >= :first
   AND type = :type
   AND state = 'succeeded'

-- name: bench_finished
SELECT id
  FROM holdfast_jobs
 WHERE id >= :first
   AND type = :type
   AND finished_at IS NOT NULL
 ORDER BY id
 LIMIT {limit}
