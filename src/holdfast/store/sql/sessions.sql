-- name: put_session
INSERT INTO holdfast_sessions (digest, key_id, created_at, expires_at)
SELECT digest, key_id, {now}, {now+made.seconds}
  FROM {rows:made(digest text, key_id text, seconds float8)}
RETURNING expires_at

-- name: live_session
-- Its key is checked separately, with each request.
SELECT key_id, created_at, expires_at FROM holdfast_sessions WHERE digest = :digest AND expires_at > {now}

-- name: end_session
DELETE FROM holdfast_sessions WHERE digest = :digest RETURNING key_id

-- name: sessions_were_used
-- At most once a minute, for all servers together.
UPDATE holdfast_sessions
   SET used_at = {now}
 WHERE digest {in:digests text}
   AND (used_at IS NULL OR used_at <= {now-60})
RETURNING digest

-- name: prune_sessions
WITH over AS MATERIALIZED (
    SELECT digest
      FROM holdfast_sessions
     WHERE expires_at <= {now}
     ORDER BY expires_at
     LIMIT {limit}
    {skip_locked}
)
DELETE FROM holdfast_sessions WHERE digest IN (SELECT digest FROM over) RETURNING digest
