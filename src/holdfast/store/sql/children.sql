-- name: mark_due_parents
-- Parents that wait for their children: those without unfinished children become claimable; the others are checked again
-- after `pause`, or when a child finishes (trigger holdfast_jobs_child_ended).
WITH ripe AS MATERIALIZED (
    SELECT id
      FROM holdfast_jobs
     WHERE parked = 'waiting'
       AND parked_at <= {now}
       AND reason = 'waiting_for_children'
     ORDER BY parked_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_jobs
   SET due    = NOT EXISTS (SELECT 1 FROM holdfast_jobs AS child WHERE child.parent_id = holdfast_jobs.id AND child.finished_at IS NULL),
       run_at = CASE WHEN EXISTS (SELECT 1 FROM holdfast_jobs AS child WHERE child.parent_id = holdfast_jobs.id AND child.finished_at IS NULL)
                     THEN {now+:pause}
                     ELSE run_at
                END
 WHERE id {in ripe}
RETURNING id, queue, type, priority, due

-- name: children
SELECT {job} FROM holdfast_jobs WHERE parent_id = :id ORDER BY id LIMIT {limit}

-- name: unfinished_children
SELECT count(*) AS jobs FROM holdfast_jobs WHERE parent_id = :id AND finished_at IS NULL
