-- name: lost_jobs
-- Running jobs to reap: the lease expired (in some lifecycles only once the worker is offline too), the process crashed
-- and has not renewed the lease since, a time limit of the policy passed, or a cancel request was ignored. The expiry has
-- no index: each renewal would then change it. Running jobs are few.
SELECT holdfast_jobs.id, holdfast_jobs.lease_token, holdfast_jobs.lifecycle, holdfast_jobs.policy,
       holdfast_jobs.moves, holdfast_jobs.attempt, holdfast_jobs.max_attempts, holdfast_jobs.failures,
       holdfast_jobs.lost, holdfast_jobs.lease_worker, holdfast_jobs.lease_expires_at,
       holdfast_jobs.cancel_requested_at, holdfast_jobs.reason, holdfast_jobs.error,
       holdfast_jobs.lease_instance {in:gone text}
           AND holdfast_jobs.lease_expires_at <= {now+holdfast_jobs.lease_seconds - :unheard} AS seen_dead,
       holdfast_jobs.claimed_at <= {now-p.max_runtime_seconds} AS over_runtime,
       NOT :in_grace AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= {now-p.no_progress_seconds} AS no_progress,
       holdfast_jobs.cancel_requested_at <= {now-p.cancel_grace_seconds} AS over_cancel
  FROM holdfast_running AS holdfast_jobs
  JOIN holdfast_policies p ON p.id = holdfast_jobs.policy
 WHERE {any:queues holdfast_jobs.queue text}
   AND (holdfast_jobs.lease_instance {in:gone text}
           AND holdfast_jobs.lease_expires_at <= {now+holdfast_jobs.lease_seconds - :unheard}
        OR holdfast_jobs.claimed_at <= {now-p.max_runtime_seconds}
        OR holdfast_jobs.cancel_requested_at <= {now-p.cancel_grace_seconds}
        OR NOT :in_grace
           AND coalesce(holdfast_jobs.progress_at, holdfast_jobs.claimed_at) <= {now-p.no_progress_seconds}
        OR NOT :in_grace
           AND holdfast_jobs.lease_expires_at <= {now}
           AND (NOT p.waits_for_offline
                OR NOT EXISTS (SELECT 1
                                 FROM holdfast_workers w
                                WHERE w.id = holdfast_jobs.lease_worker
                                  AND coalesce(w.last_heartbeat_at, w.registered_at) > {now-p.offline_seconds})))
   AND {mine}
   AND {not held back:reap}
 ORDER BY holdfast_jobs.id
 LIMIT {limit}
{skip_locked of jobs}

-- name: reap_to_retry
-- move: reap
-- ends: lost
-- data: error
-- Guarded by the token that `lost_jobs` read: a job that was finished or claimed again since is not touched.
UPDATE holdfast_jobs
   SET came_from  = state,
       state      = {to:reap>retrying},
       reason     = gone.reason,
       {next version},
       lost       = holdfast_jobs.lost + gone.lost,
       error      = gone.error,
       run_at     = {now+gone.delay_seconds},
       due        = gone.delay_seconds <= 0 AND moves & {bit:retrying>running} <> 0 AND attempt < max_attempts,
       step       = NULL,
       {lease ended},
       updated_at = {now}
  FROM {rows:gone(id uuid, token uuid, lost integer, reason text, error text, delay_seconds float8)}
 WHERE holdfast_jobs.id = gone.id
   AND {running}
   AND holdfast_jobs.lease_token = gone.token
   AND {mine}
RETURNING {moved}

-- name: reap_to_dead
-- move: reap
-- ends: lost
-- data: error
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:reap>dead},
       reason      = gone.reason,
       {next version},
       lost        = holdfast_jobs.lost + gone.lost,
       error       = gone.error,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:gone(id uuid, token uuid, lost integer, reason text, error text)}
 WHERE holdfast_jobs.id = gone.id
   AND {running}
   AND holdfast_jobs.lease_token = gone.token
   AND {mine}
RETURNING {moved}

-- name: reap_waiting
-- move: reap
-- data: error
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:reap>dead},
       due         = NULL,
       {next version},
       finished_at = {now},
       updated_at  = {now}
 WHERE id {in:ids uuid}
   AND state = 'retrying'
   AND {mine}
RETURNING {moved}

-- name: reap_to_canceled
-- move: reap
-- ends: lost
UPDATE holdfast_jobs
   SET came_from   = state,
       state       = {to:reap>canceled},
       reason      = gone.reason,
       {next version},
       lost        = holdfast_jobs.lost + gone.lost,
       {lease ended},
       finished_at = {now},
       updated_at  = {now}
  FROM {rows:gone(id uuid, token uuid, lost integer, reason text)}
 WHERE holdfast_jobs.id = gone.id
   AND {running}
   AND holdfast_jobs.lease_token = gone.token
   AND holdfast_jobs.cancel_requested_at IS NOT NULL
   AND {mine}
RETURNING {moved}

-- name: sweep
SELECT swept_at <= {now-:pause} AS stale,
       swept_at > {now+5} AS set_back,
       coalesce(grace_until > {now}, FALSE) AS in_grace
  FROM holdfast_sweeps
 WHERE name = 'reap'

-- name: first_sweep
INSERT INTO holdfast_sweeps (name, swept_at) VALUES ('reap', {now}) ON CONFLICT (name) DO NOTHING RETURNING name

-- name: mark_sweep
-- After a gap without sweeps, expired leases are not reaped for a grace period as long as the gap, up to a cap. A gap that
-- began within a grace period does not extend it: otherwise sweeps that are far apart would never reap a lease.
UPDATE holdfast_sweeps
   SET grace_until = CASE WHEN swept_at > {now-2 * :interval} OR grace_until > swept_at THEN grace_until
                          WHEN swept_at <= {now-:grace_seconds} THEN {now+:grace_seconds}
                          ELSE {now} + ({now} - swept_at)
                     END,
       swept_at = {now}
 WHERE name = 'reap'
   AND swept_at <= {now-:pause}
RETURNING coalesce(grace_until > {now}, FALSE) AS in_grace

-- name: drop_claim_batches
-- Only PostgreSQL has batches: see holdfast_running.
SELECT {drop batches} AS dropped
