-- name: add_requests
INSERT INTO holdfast_generation_request
       (id, tenant, user_id, job_id, status, prompt, negative_prompt, width, height, count, seed, style, provider,
        credits, created_at, updated_at)
SELECT made.id, made.tenant, made.user_id, made.id, 'queued', made.prompt, made.negative_prompt, made.width, made.height,
       made.count, made.seed, made.style, made.provider, made.credits, {now}, {now}
  FROM {rows:made(id text, tenant text, user_id text, prompt text, negative_prompt text, width integer,
                  height integer, count integer, seed bigint, style text, provider text, credits bigint)}

-- name: assign_job
-- A redrive: from now on this job decides what becomes of the request.
UPDATE holdfast_generation_request
   SET job_id = :job_id, status = 'queued', prompt = :prompt, negative_prompt = :negative_prompt, width = :width,
       height = :height, count = :count, seed = :seed, style = :style, provider = :provider, credits = :credits,
       retry_count = 0, error_code = NULL, error_message = NULL, updated_at = {now}, finished_at = NULL
 WHERE id = :id AND tenant = :tenant AND user_id = :user_id
RETURNING id

-- name: set_status
UPDATE holdfast_generation_request
   SET status        = :status,
       retry_count   = :retry_count,
       error_code    = :error_code,
       error_message = :error_message,
       started_at    = CASE WHEN :status = 'running' THEN coalesce(started_at, {now}) ELSE started_at END,
       updated_at    = {now}
 WHERE job_id = :job_id

-- name: unfinished
-- The job that works on it.
SELECT job_id FROM holdfast_generation_request WHERE id = :id AND finished_at IS NULL

-- name: settle_request
-- If no newer job was made for it.
UPDATE holdfast_generation_request
   SET status        = :status,
       retry_count   = :retry_count,
       error_code    = :error_code,
       error_message = :error_message,
       credits       = 0,
       charged       = charged + :charged,
       updated_at    = {now},
       finished_at   = {now}
 WHERE job_id = :job_id

-- name: request
SELECT * FROM holdfast_generation_request WHERE tenant = :tenant AND user_id = :user_id AND id = :id

-- name: request_of_job
-- Of any tenant.
SELECT * FROM holdfast_generation_request WHERE job_id = :job_id

-- name: requests_of_jobs
-- Of any tenant.
SELECT * FROM holdfast_generation_request WHERE job_id {in:ids text}

-- name: request_by_id
-- Of any tenant.
SELECT * FROM holdfast_generation_request WHERE id = :id

-- name: page
SELECT * FROM holdfast_generation_request
 WHERE tenant = :tenant AND user_id = :user_id AND id < :before
 ORDER BY id DESC LIMIT {limit}

-- name: page_of_status
SELECT * FROM holdfast_generation_request
 WHERE tenant = :tenant AND user_id = :user_id AND status = :status AND id < :before
 ORDER BY id DESC LIMIT {limit}

-- name: queue_ahead
SELECT id FROM holdfast_generation_request
 WHERE tenant = :tenant AND status = 'queued' AND id < :id LIMIT {limit}

-- name: recent_runs
SELECT started_at, finished_at FROM holdfast_generation_request
 WHERE tenant = :tenant AND status = 'completed' AND finished_at >= {now-:seconds}
 ORDER BY finished_at DESC LIMIT {limit}
