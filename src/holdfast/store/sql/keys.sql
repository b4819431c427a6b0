-- name: put_key
INSERT INTO holdfast_keys (id, kind, tenant, name, subject, digest, scopes, worker_id, rate_per_second, expires_in, created_at, expires_at)
SELECT id, kind, tenant, name, subject, digest, scopes, worker_id, rate_per_second, expires_in, {now}, {now+made.expires_in}
  FROM {rows:made(id text, kind text, tenant text, name text, subject text, digest text, scopes text, worker_id uuid,
                  rate_per_second float8, expires_in float8)}
RETURNING {key}

-- name: live_key
-- Whether it is over is the database's to say, by its own clock.
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
-- Which kinds of keys were ever made: one that is over counts too, lest its end open a door.
SELECT DISTINCT kind FROM holdfast_keys

-- name: revoke_key
UPDATE holdfast_keys SET revoked_at = coalesce(revoked_at, {now}) WHERE id = :id RETURNING {key}

-- name: revoke_keys_of_worker
UPDATE holdfast_keys SET revoked_at = {now} WHERE worker_id = :worker AND revoked_at IS NULL RETURNING {key}

-- name: end_key_soon
-- Never later than it would have ended anyway.
UPDATE holdfast_keys
   SET expires_at = CASE WHEN expires_at < {now+:seconds} THEN expires_at ELSE {now+:seconds} END
 WHERE id = :id
   AND revoked_at IS NULL
   AND (expires_at IS NULL OR expires_at > {now})
RETURNING {key}

-- name: keys_were_used
-- Once a minute is enough, however many servers say so.
UPDATE holdfast_keys
   SET used_at = {now}
 WHERE id {in:ids text}
   AND (used_at IS NULL OR used_at <= {now-60})
RETURNING id
