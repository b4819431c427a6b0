-- name: webhooks
-- All webhooks, or those with the given ids: they are few.
SELECT id, tenant, name, url, secrets, wanted, enabled, disabled_reason, failing_since AS failing_since_at, created_at
  FROM holdfast_webhooks
 WHERE {any:ids id uuid}
 ORDER BY created_at, id

-- name: put_webhook
INSERT INTO holdfast_webhooks (id, tenant, name, url, secrets, wanted, created_at)
VALUES (:id, :tenant, :name, :url, :secrets, :wanted, {now})
RETURNING id

-- name: hold_webhook
-- Locks the row: a concurrent change waits, so that neither is lost.
UPDATE holdfast_webhooks SET name = name WHERE id = :id RETURNING id

-- name: change_webhook
UPDATE holdfast_webhooks
   SET name            = :name,
       url             = :url,
       secrets         = :secrets,
       wanted          = :wanted,
       enabled         = :enabled,
       disabled_reason = :disabled_reason,
       failing_since   = CASE WHEN enabled THEN failing_since END
 WHERE id = :id
RETURNING id

-- name: drop_webhook
-- Its deliveries are no longer listed, and are pruned by age.
DELETE FROM holdfast_webhooks WHERE id = :id RETURNING id

-- name: webhook_fails
UPDATE holdfast_webhooks SET failing_since = {now} WHERE id = :id AND failing_since IS NULL RETURNING id

-- name: webhook_answers
UPDATE holdfast_webhooks SET failing_since = NULL WHERE id = :id AND failing_since IS NOT NULL RETURNING id

-- name: disable_webhook
UPDATE holdfast_webhooks
   SET enabled         = FALSE,
       disabled_reason = :reason
 WHERE id = :id
   AND enabled
   AND (:at_once OR failing_since <= {now-:seconds})
RETURNING id

-- name: reader
SELECT pos, job_id, seq FROM holdfast_readers WHERE name = :name

-- name: locked_reader
-- Skipped if locked: the process that holds the row does the work.
SELECT pos, job_id, seq FROM holdfast_readers WHERE name = :name
{skip_locked}

-- name: put_reader
INSERT INTO holdfast_readers (name, pos, job_id, seq, read_at) VALUES (:name, :pos, :job_id, :seq, {now})
    ON CONFLICT (name) DO NOTHING
RETURNING pos, job_id, seq

-- name: advance_reader
UPDATE holdfast_readers
   SET pos     = :pos,
       job_id  = :job_id,
       seq     = :seq,
       read_at = {now}
 WHERE name = :name
RETURNING name

-- name: webhook_jobs
-- The columns of a job that a webhook message contains.
SELECT id, type, queue, subject, policy, max_attempts FROM holdfast_jobs WHERE id {in:ids uuid} ORDER BY id

-- name: put_deliveries
INSERT INTO holdfast_deliveries (id, webhook_id, tenant, job_id, seq, event, body, state, log, created_at, next_at)
SELECT made.id, made.webhook_id, made.tenant, made.job_id, made.seq, made.event, made.body, 'pending', '[]', {now}, {now}
  FROM {rows:made(id uuid, webhook_id uuid, tenant text, job_id uuid, seq integer, event text, body text)}
 WHERE TRUE
    ON CONFLICT (webhook_id, job_id, seq) DO NOTHING
RETURNING id

-- name: webhooks_with_work
SELECT asked.id
  FROM {rows:asked(id uuid)}
 WHERE EXISTS (SELECT 1
                 FROM holdfast_deliveries
                WHERE webhook_id = asked.id
                  AND state = 'pending'
                  AND next_at <= {now})

-- name: claim_deliveries
-- `next_at` is the end of the delivery lease: if no outcome is recorded by then, the delivery is retried.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_deliveries
     WHERE webhook_id {in:webhooks uuid}
       AND state = 'pending'
       AND next_at <= {now}
     ORDER BY next_at
     LIMIT {limit}
    {skip_locked}
)
UPDATE holdfast_deliveries
   SET tries   = tries + 1,
       next_at = {now+:lease_seconds}
 WHERE id {in picked}
RETURNING id

-- name: claim_delivery
-- Claims this delivery now, also if its webhook is disabled.
UPDATE holdfast_deliveries
   SET tries   = tries + 1,
       next_at = {now+:lease_seconds}
 WHERE id = :id
RETURNING id

-- name: deliveries_by_id
SELECT id, webhook_id, tenant, job_id, seq, event, body, state, tries, log, created_at, next_at, finished_at
  FROM holdfast_deliveries
 WHERE id {in:ids uuid}
 ORDER BY id

-- name: page_deliveries
SELECT id, webhook_id, tenant, job_id, seq, event, body, state, tries, log, created_at, next_at, finished_at
  FROM holdfast_deliveries
 WHERE webhook_id = :webhook
   AND id < :before
   AND {any:states state text}
 ORDER BY id DESC
 LIMIT {limit}

-- name: settle_delivery
-- `tries` identifies the attempt: a late outcome of an earlier attempt changes nothing.
UPDATE holdfast_deliveries
   SET state       = :state,
       log         = :log,
       next_at     = {now+:delay_seconds},
       finished_at = CASE WHEN :state <> 'pending' THEN {now} END
 WHERE id = :id
   AND state = 'pending'
   AND tries = :tries
RETURNING id

-- name: replay_delivery
UPDATE holdfast_deliveries
   SET state       = 'pending',
       tries       = 0,
       next_at     = {now},
       finished_at = NULL
 WHERE id = :id
RETURNING id

-- name: prune_deliveries
-- Finished deliveries older than `seconds`, and pending ones whose webhook is disabled or deleted.
WITH picked AS MATERIALIZED (
    SELECT id
      FROM holdfast_deliveries
     WHERE next_at <= {now-:seconds}
     ORDER BY next_at
     LIMIT {limit}
    {skip_locked}
)
DELETE FROM holdfast_deliveries WHERE id {in picked} RETURNING id

-- name: alerts
SELECT kind, sent_at, held, memory FROM holdfast_alerts ORDER BY kind

-- name: put_alert
INSERT INTO holdfast_alerts (kind, sent_at, held, memory) VALUES (:kind, :sent_at, :held, :memory)
    ON CONFLICT (kind) DO UPDATE
   SET sent_at = excluded.sent_at,
       held    = excluded.held,
       memory  = excluded.memory
RETURNING kind

-- name: failures
-- Failed executions after a position in the log. The condition on `verb` is that of the partial index.
SELECT pos, job_id, seq, verb, to_state, attempt,
       (SELECT max_attempts FROM holdfast_jobs WHERE holdfast_jobs.id = holdfast_events.job_id) AS max_attempts
  FROM holdfast_events
 WHERE (verb = 'fail' OR verb = 'reap')
   AND from_state = 'running'
   AND (pos, job_id, seq) > (:pos, :job_id, :seq)
   AND pos < {horizon}
 ORDER BY pos, job_id, seq
 LIMIT {limit}

-- name: put_figures
INSERT INTO holdfast_counted (name, taken_at, asked_at, figures) VALUES (:name, {now}, {now}, :figures)
    ON CONFLICT (name) DO UPDATE
   SET taken_at = excluded.taken_at,
       figures  = excluded.figures
RETURNING name
