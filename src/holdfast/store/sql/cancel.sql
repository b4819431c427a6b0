-- name: cancel_waiting
-- move: cancel
-- Nobody runs it, so the wish and the move are one.
UPDATE jobs
   SET came_from           = state,
       state               = {to:cancel},
       reason              = :reason,
       due                 = NULL,
       version             = version + 1,
       cancel_requested_at = {now},
       finished_at         = {now},
       updated_at          = {now}
 WHERE id {in:ids uuid}
   AND state {from:cancel by client}
RETURNING {moved}

-- name: ask_to_cancel
-- note: cancel
-- Somebody runs it: the wish is kept, and told at the next heartbeat or progress.
UPDATE jobs
   SET cancel_requested_at = {now},
       reason              = :reason,
       version             = version + 1,
       updated_at          = {now}
 WHERE id {in:ids uuid}
   AND state = 'running'
   AND cancel_requested_at IS NULL
RETURNING {moved}

-- name: cancel_running
-- move: cancel
-- ends: canceled
-- data: error
-- The owner stops. What it reported on the way out is kept.
UPDATE jobs
   SET came_from   = state,
       state       = {to:cancel},
       version     = version + 1,
       error       = stopped.error,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:stopped(id uuid, token uuid, error text)}
 WHERE jobs.id = stopped.id
   AND {running}
   AND jobs.lease_token = stopped.token
   AND jobs.lease_worker = :worker
   AND jobs.cancel_requested_at IS NOT NULL
RETURNING {moved}
