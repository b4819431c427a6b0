-- name: due_work
-- Which maintenance steps have work, in one read without locks: usually none. False positives are possible; false
-- negatives are not. `full_keys`: keyed lanes wait until units are freed, or for longer than a moment until there are
-- tokens; a rate that has changed may have given them earlier.
WITH RECURSIVE {keyed:zero}
SELECT coalesce({log end} >= {ceiling}, FALSE) AS log_ahead,
       NOT EXISTS (SELECT 1 FROM holdfast_sweeps WHERE name = 'reap' AND swept_at > {now-:pause} AND swept_at <= {now+5}) AS unswept,
       EXISTS (SELECT 1 FROM holdfast_jobs WHERE parked IN ('waiting', 'retrying') AND parked_at <= {now}) AS ripe,
       {some running:TRUE} AS running,
       {stale batches} AS batches,
       coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at LIMIT 1) <= {now-:orphaned}, FALSE)
       OR coalesce((SELECT parked_at FROM holdfast_jobs WHERE parked = 'created' ORDER BY parked_at DESC LIMIT 1) > {now+5}, FALSE) AS orphans,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE liveness <> 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= {now-offline_seconds}) AS silent,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE kind = 'local'
                  AND enabled
                  AND liveness = 'offline'
                  AND coalesce(last_heartbeat_at, registered_at) <= {now-:workers_kept}) AS forgotten,
       coalesce((SELECT claimed_at FROM holdfast_claims ORDER BY claimed_at LIMIT 1) <= {now-:claims_kept}, FALSE) AS claims,
       coalesce((SELECT expires_at FROM holdfast_sessions ORDER BY expires_at LIMIT 1) <= {now}, FALSE) AS sessions,
       EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NULL)
       OR EXISTS (SELECT 1
                    FROM keyed
                   WHERE keyed.nth = {limit} AND keyed.lane IS NOT NULL
                      OR (SELECT max(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at IS NOT NULL) > {now+5}) AS full_keys,
       EXISTS (SELECT 1 FROM holdfast_limit_tokens WHERE full_at <= {now}) AS tokens,
       EXISTS (SELECT 1 FROM holdfast_limits WHERE updated_at >= {now-:recounted}) AS changed_limits,
       EXISTS (SELECT 1
                 FROM holdfast_workers
                WHERE (SELECT at FROM holdfast_events AS oldest WHERE oldest.job_id = holdfast_workers.id ORDER BY seq LIMIT 1) <= {now-:lines_kept}
                  AND (SELECT min(seq) FROM holdfast_events AS first WHERE first.job_id = holdfast_workers.id)
                      < (SELECT max(seq) FROM holdfast_events AS newest WHERE newest.job_id = holdfast_workers.id)) AS lines
