-- name: ended_jobs
-- Of the jobs that callers wait for: those that have ended or were deleted. Each is looked up by itself: a join might read
-- the whole table.
SELECT wanted.job
  FROM {rows:wanted(job uuid)}
 WHERE coalesce((SELECT state FROM holdfast_jobs WHERE id = wanted.job), 'deleted')
       IN ('succeeded', 'dead', 'canceled', 'rejected', 'deleted')
