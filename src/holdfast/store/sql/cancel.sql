-- name: cancel_waiting
-- move: cancel
-- data: '{"control": "system.cancel"}'
-- No worker runs the job: the cancel request takes effect at once.
UPDATE holdfast_jobs
   SET came_from           = state,
       state               = {to:cancel},
       reason              = :reason,
       due                 = NULL,
       {next version},
       cancel_requested_at = {now},
       finished_at         = {now},
       updated_at          = {now}
 WHERE id {in:ids uuid}
   AND state {from:cancel by client}
   AND {mine}
RETURNING {moved}

-- name: ask_to_cancel
-- note: cancel
-- data: '{"control": "system.cancel"}'
-- A worker runs the job: the request is stored, and the worker gets it with its next heartbeat or progress report.
UPDATE holdfast_jobs
   SET cancel_requested_at = {now},
       reason              = :reason,
       {next version},
       updated_at          = {now}
 WHERE id {in:ids uuid}
   AND state = 'running'
   AND cancel_requested_at IS NULL
   AND {mine}
RETURNING {moved}

-- name: cancel_running
-- move: cancel
-- ends: canceled
-- data: error
-- The lease holder has stopped. The error that it reported is kept.
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:cancel},
       {next version},
       error       = stopped.error,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:stopped(id uuid, token uuid, error text)}
 WHERE holdfast_jobs.id = stopped.id
   AND {running}
   AND holdfast_jobs.lease_token = stopped.token
   AND holdfast_jobs.lease_worker = :worker
   AND holdfast_jobs.cancel_requested_at IS NOT NULL
   AND {mine}
RETURNING {moved}
