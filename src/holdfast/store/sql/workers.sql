-- name: put_worker
INSERT INTO holdfast_workers (id, name, kind, tenants, capabilities, offers, metadata, liveness, slots, registered_at,
                              last_heartbeat_at, heartbeat_seconds, offline_seconds)
VALUES (:id, :name, :kind, :tenants, :capabilities, :offers, :metadata, 'active', :slots, {now}, NULL,
        :heartbeat_seconds, :offline_seconds)
    ON CONFLICT (id) DO UPDATE
   SET name              = excluded.name,
       kind              = excluded.kind,
       tenants           = excluded.tenants,
       capabilities      = excluded.capabilities,
       offers            = excluded.offers,
       metadata          = excluded.metadata,
       slots             = excluded.slots,
       heartbeat_seconds = excluded.heartbeat_seconds,
       offline_seconds   = excluded.offline_seconds
RETURNING {worker}

-- name: worker
SELECT {worker} FROM holdfast_workers WHERE id = :id

-- name: workers
SELECT {worker} FROM holdfast_workers ORDER BY registered_at, id

-- name: note_claim_scopes
-- The last of two concurrent writes wins; the other server writes its scope again within half a minute.
UPDATE holdfast_workers SET claim_scopes = :scopes WHERE id = :id RETURNING id

-- name: enable_worker
UPDATE holdfast_workers SET enabled = :enabled WHERE id = :id RETURNING {worker}

-- name: silent_workers
-- The condition is checked again by the update: a heartbeat in between keeps its worker online.
UPDATE holdfast_workers
   SET liveness = 'offline'
 WHERE liveness <> 'offline'
   AND coalesce(last_heartbeat_at, registered_at) <= {now-offline_seconds}
RETURNING {worker}

-- name: forget_workers
-- A worker process registers under a new id at each start, so old rows are deleted; disabled workers are kept.
DELETE FROM holdfast_workers
 WHERE kind = 'local'
   AND enabled
   AND liveness = 'offline'
   AND coalesce(last_heartbeat_at, registered_at) <= {now-:seconds}
   AND NOT EXISTS (SELECT 1 FROM holdfast_running WHERE holdfast_running.lease_worker = holdfast_workers.id)
RETURNING id, name

-- name: keep_worker_names
INSERT INTO holdfast_past_workers (id, name)
SELECT past.id, past.name
  FROM {rows:past(id uuid, name text)}
 WHERE past.name IS NOT NULL
    ON CONFLICT (id) DO UPDATE
   SET name = excluded.name
RETURNING id

-- name: jobs_of_worker
SELECT id, type, queue, tenant, attempt, claimed_at, lease_expires_at, lease_instance, percent, step
  FROM holdfast_running
 WHERE lease_worker = :worker
 ORDER BY claimed_at, id
 LIMIT {limit}
