-- name: pause_queue
INSERT INTO holdfast_queues (tenant, name, paused_at, paused_by) VALUES (:tenant, :name, {now}, :by)
    ON CONFLICT (tenant, name) DO UPDATE
   SET paused_at = coalesce(holdfast_queues.paused_at, excluded.paused_at),
       paused_by = coalesce(holdfast_queues.paused_by, excluded.paused_by)
RETURNING name

-- name: resume_queue
UPDATE holdfast_queues SET paused_at = NULL, paused_by = NULL WHERE tenant = :tenant AND name = :name RETURNING name

-- name: paused_queues
SELECT tenant, name, paused_at, paused_by FROM holdfast_queues WHERE paused_at IS NOT NULL ORDER BY tenant, name
