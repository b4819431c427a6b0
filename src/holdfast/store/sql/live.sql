-- name: kinds_of_jobs
-- What events do not say about their jobs.
SELECT id, type, queue, policy, subject FROM holdfast_jobs WHERE id {in:ids uuid} ORDER BY id
