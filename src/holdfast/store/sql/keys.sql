-- name: put_key
INSERT INTO holdfast_keys (id, kind, tenant, name, subject, digest, scopes, worker_id, rate_per_second, expires_in, created_at, expires_at)
SELECT id, kind, tenant, name, subject, digest, scopes, worker_id, rate_per_second, expires_in, {now}, {now+made.expires_in}
  FROM {rows:made(id text, kind text, tenant text, name text, subject text, digest text, scopes text, worker_id uuid,
                  rate_per_second float8, expires_in float8)}
RETURNING {key}

-- name: live_key
-- A key that is not revoked or expired, by the clock of the database.
SELECT {key}, digest
  FROM holdfast_keys
 WHERE id = :id
   AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > {now})

-- name: key
SELECT {key} FROM holdfast_keys WHERE id = :id

-- name: keys
SELECT {key} FROM holdfast_keys ORDER BY created_at, id

-- name: kinds_of_keys
-- The kinds of all keys, also expired and revoked ones: the end of the last key must not disable authentication.
SELECT DISTINCT kind FROM holdfast_keys

-- name: revoke_key
UPDATE holdfast_keys SET revoked_at = coalesce(revoked_at, {now}) WHERE id = :id RETURNING {key}

-- name: revoke_keys_of_worker
UPDATE holdfast_keys SET revoked_at = {now} WHERE worker_id = :worker AND revoked_at IS NULL RETURNING {key}

-- name: end_key_soon
-- Brings the expiry forward, never back.
UPDATE holdfast_keys
   SET expires_at = CASE WHEN expires_at < {now+:seconds} THEN expires_at ELSE {now+:seconds} END
 WHERE id = :id
   AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > {now})
RETURNING {key}

-- name: keys_were_used
-- At most once a minute, for all servers together.
UPDATE holdfast_keys
   SET used_at = {now}
 WHERE id {in:ids text}
   AND (used_at IS NULL OR used_at <= {now-60})
RETURNING id
