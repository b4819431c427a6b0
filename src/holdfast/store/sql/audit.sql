-- name: audit_end
-- The last entry, if any, and the current time: an entry's digest covers its time, so the time is read before the insert.
SELECT coalesce(last.seq, 0) AS seq, coalesce(last.digest, '') AS digest, clock.now_at
  FROM (SELECT {now} AS now_at) AS clock
  LEFT JOIN (SELECT seq, digest FROM holdfast_audit ORDER BY seq DESC LIMIT 1) AS last ON TRUE

-- name: append_audit
-- A concurrent writer of the same `seq` blocks here until the first commits, gets no row back, and reads the new end.
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
