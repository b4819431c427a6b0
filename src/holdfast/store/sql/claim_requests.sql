-- name: begin_claim
-- A concurrent request with the same id blocks here until this transaction commits, and then reads its answer.
INSERT INTO holdfast_claims (worker_id, request_id, claimed_at, leases)
VALUES (:worker, :request, {now}, '[]')
    ON CONFLICT (worker_id, request_id) DO NOTHING
RETURNING request_id

-- name: answer_claim
UPDATE holdfast_claims
   SET leases = :leases
 WHERE worker_id = :worker
   AND request_id = :request
RETURNING request_id

-- name: repeat_claim
UPDATE holdfast_claims
   SET repeated = TRUE
 WHERE worker_id = :worker
   AND request_id = :request
RETURNING leases

-- name: drop_claim
DELETE FROM holdfast_claims
 WHERE worker_id = :worker
   AND request_id = :request
   AND NOT repeated
RETURNING request_id

-- name: prune_claims
WITH old AS MATERIALIZED (
    SELECT worker_id, request_id
      FROM holdfast_claims
     WHERE claimed_at <= {now-:seconds}
     ORDER BY claimed_at
     LIMIT {limit}
    {skip_locked}
)
DELETE FROM holdfast_claims WHERE (worker_id, request_id) IN (SELECT worker_id, request_id FROM old) RETURNING request_id
