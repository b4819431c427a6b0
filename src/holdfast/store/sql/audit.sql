-- name: audit_end
-- The last line, if there is one, and the time: a line's digest covers it, so it is known before the line is written.
SELECT coalesce(last.seq, 0) AS seq, coalesce(last.digest, '') AS digest, clock.now_at
  FROM (SELECT {now} AS now_at) AS clock
  LEFT JOIN (SELECT seq, digest FROM holdfast_audit ORDER BY seq DESC LIMIT 1) AS last ON TRUE

-- name: append_audit
-- Whoever comes second waits here for the first, is then given nothing back, and looks for the new end.
INSERT INTO holdfast_audit (seq, at, actor, action, subject, detail, previous, digest)
VALUES (:seq, :at, :actor, :action, :subject, :detail, :previous, :digest)
    ON CONFLICT (seq) DO NOTHING
RETURNING seq

-- name: page_audit
SELECT seq, at, actor, action, subject, detail, previous, digest
  FROM holdfast_audit
 WHERE seq < :before
 ORDER BY seq DESC
 LIMIT {limit}

-- name: walk_audit
SELECT seq, at, actor, action, subject, detail, previous, digest
  FROM holdfast_audit
 WHERE seq > :after
 ORDER BY seq
 LIMIT {limit}
