-- name: job
SELECT {job} FROM holdfast_jobs WHERE id = :id

-- name: jobs_by_id
SELECT {job} FROM holdfast_jobs WHERE id {in:ids uuid} ORDER BY id

-- name: ids_between
SELECT id FROM holdfast_jobs WHERE id >= :first AND id <= :last ORDER BY id LIMIT {limit}

-- name: page_jobs
SELECT {job} FROM holdfast_jobs WHERE {filters} ORDER BY id DESC LIMIT {limit}

-- name: successors
SELECT id FROM holdfast_jobs WHERE redrive_of = :id ORDER BY id LIMIT {limit}

-- name: count_jobs
SELECT queue, type, state, count(*) AS jobs FROM holdfast_jobs WHERE {filters} GROUP BY queue, type, state ORDER BY queue, type, state

-- name: history
SELECT {event} FROM holdfast_events WHERE job_id = :id AND seq > :after ORDER BY seq LIMIT {limit}

-- name: feed
-- Events of all jobs, ordered so that none ever appears behind a reader's position: see `{horizon}`.
SELECT {event}
  FROM holdfast_events
 WHERE (pos, job_id, seq) > (:pos, :job_id, :seq)
   AND pos < {horizon}
 ORDER BY pos, job_id, seq
 LIMIT {limit}

-- name: feed_end
SELECT pos, job_id, seq FROM holdfast_events WHERE pos < {horizon} ORDER BY pos DESC, job_id DESC, seq DESC LIMIT 1

-- name: log_extent
-- The last pruned position, and the position that no reader can have reached.
SELECT pruned, {beyond} AS beyond FROM holdfast_event_log

-- name: log_is_ahead
-- Does the log contain positions that no transaction of this server can have assigned?
SELECT {log end} >= {ceiling} AS ahead

-- name: rebase
-- Moves the base so far that no position is assigned twice. Every writer of events reads this row first: the row lock
-- waits for them, and they wait for it.
UPDATE holdfast_event_log SET base = {log end} + :jump RETURNING base

-- name: attempts
SELECT {attempt},
       coalesce((SELECT name FROM holdfast_workers WHERE holdfast_workers.id = holdfast_attempts.worker_id),
                (SELECT name FROM holdfast_past_workers WHERE holdfast_past_workers.id = holdfast_attempts.worker_id)) AS worker_name
  FROM holdfast_attempts
 WHERE job_id = :id
 ORDER BY epoch

-- name: attempt_by_token
SELECT {attempt} FROM holdfast_attempts WHERE job_id = :id AND token = :token

-- name: parts
SELECT job_id, name, status, percent, total, done, error, data, started_at, completed_at, epoch
  FROM holdfast_parts
 WHERE job_id {in:ids uuid}
 ORDER BY job_id, place, name

-- name: count_parts
SELECT job_id, count(*) AS parts FROM holdfast_parts WHERE job_id {in:ids uuid} GROUP BY job_id

-- name: lane
SELECT tenant, queue, type, requires, prefers, limits, defer_seconds FROM holdfast_lanes WHERE id = :id

-- name: ahead_in_lane
-- The number of jobs ahead of it, counted up to the limit.
SELECT count(*) AS ahead
  FROM (SELECT 1
          FROM holdfast_ready
         WHERE lane = :lane
           AND (priority > :priority OR priority = :priority AND id < :id)
         LIMIT {limit}) AS first

-- name: clock
SELECT {now} AS now_at

-- name: summaries
-- Summaries of several jobs; a job of another tenant is not found.
SELECT wanted.job, wanted.whose, {summary}, {now} AS now_at, {parts of jobs} AS parts
  FROM {rows:wanted(job uuid, whose text)}
  JOIN holdfast_jobs ON holdfast_jobs.id = wanted.job
 WHERE holdfast_jobs.tenant = wanted.whose

-- name: page_summaries
SELECT {summary}, {now} AS now_at FROM holdfast_jobs WHERE {filters} ORDER BY id DESC LIMIT {limit}

-- name: event_jobs
-- Columns that events do not have.
SELECT id, type, queue, policy, subject FROM holdfast_jobs WHERE id {in:ids uuid} ORDER BY id
