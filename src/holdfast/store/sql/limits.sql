-- name: lock_limits
-- The limits of the asked buckets; `name` is that of each key. `locked`: no other claim counts the bucket until this
-- transaction has ended.
SELECT asked.bucket, m.concurrency, m.rate, m.burst, {try lock:asked.bucket} AS locked
  FROM {rows:asked(bucket text, name text)}
  JOIN holdfast_limits m ON m.name = {limit name:asked.bucket else asked.name}

-- name: limit_usage
-- The units that running jobs hold, and the tokens that were left `idle` seconds ago. Read after the lock is held.
SELECT asked.bucket,
       (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = asked.bucket) AS used,
       k.tokens, {seconds since:k.filled_at} AS idle, {now} AS counted_at
  FROM {rows:asked(bucket text)}
  LEFT JOIN holdfast_limit_tokens k ON k.bucket = asked.bucket

-- name: hold_units
INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT held.bucket, j.id, held.units
  FROM holdfast_jobs j
  JOIN {rows:held(lane bigint, bucket text, units integer)} ON held.lane = coalesce(j.key_lane, j.lane)
 WHERE j.id {in:ids uuid}
RETURNING bucket, units

-- name: spend_tokens
INSERT INTO holdfast_limit_tokens (bucket, tokens, filled_at, full_at)
SELECT spent.bucket, spent.tokens, spent.counted_at, {now+spent.full_in}
  FROM {rows:spent(bucket text, tokens float8, counted_at timestamptz, full_in float8)}
 WHERE TRUE
    ON CONFLICT (bucket) DO UPDATE
   SET tokens = excluded.tokens, filled_at = excluded.filled_at, full_at = excluded.full_at
RETURNING bucket

-- name: end_turns
-- The rows of keyed lanes that a claim has seen, except those that another claim replaces now.
DELETE FROM holdfast_key_lanes WHERE {rows of key lanes:lanes} RETURNING key_lane

-- name: begin_turns
-- One row for each keyed lane that still has claimable jobs. A lane whose bucket is full waits until units are freed, one
-- whose bucket has no tokens until it has one; both keep their place (`since`) if they had no job.
INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
SELECT turn.lane, turn.key_lane, turn.bucket,
       CASE WHEN NOT turn.shut THEN {now} WHEN NOT turn.used_up THEN {now+turn.seconds} END, coalesce(turn.since, {now})
  FROM (SELECT next.lane, next.key_lane, next.bucket, next.since, {tokens in:m} AS seconds,
               {used up:next.bucket} AS used_up, {full key:next.bucket} AS shut
          FROM {rows:next(lane bigint, key_lane bigint, bucket text, since timestamptz)}
          JOIN holdfast_lanes l ON l.id = next.lane
          {limit of key:next.bucket}
         WHERE EXISTS (SELECT 1 FROM holdfast_ready r WHERE r.lane = next.key_lane)) AS turn
RETURNING key_lane

-- name: open_changed_lanes
-- The limit of their key has changed: keyed lanes that wait have a turn. Claims replace these rows.
INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
SELECT waiting.lane, waiting.key_lane, waiting.bucket, {now}, min(waiting.since)
  FROM holdfast_key_lanes waiting
  JOIN holdfast_lanes l ON l.id = waiting.lane
 WHERE (waiting.turn_at IS NULL OR waiting.turn_at > {now})
   AND (waiting.bucket = :name OR 'key:' || l.type = :name)
 GROUP BY waiting.lane, waiting.key_lane, waiting.bucket
RETURNING key_lane

-- name: last_key_lane
-- The last of the next keyed lanes after `after`.
SELECT max(key_lane) AS last
  FROM (SELECT key_lane FROM holdfast_key_lanes WHERE key_lane > :after ORDER BY key_lane LIMIT {limit}) AS next

-- name: open_full_lanes
-- Maintenance: keyed lanes that wait although their bucket is not full have a turn. Claims replace these rows. Looks at
-- those after `after`, up to `last`.
INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
SELECT waiting.lane, waiting.key_lane, waiting.bucket, {now}, min(waiting.since)
  FROM holdfast_key_lanes waiting
  JOIN holdfast_lanes l ON l.id = waiting.lane
  {limit of key:waiting.bucket}
 WHERE waiting.key_lane > :after
   AND waiting.key_lane <= :last
   AND NOT EXISTS (SELECT 1 FROM holdfast_key_lanes other WHERE other.key_lane = waiting.key_lane AND other.turn_at <= {now} LIMIT 1 OFFSET 0)
   AND NOT {full key:waiting.bucket}
 GROUP BY waiting.lane, waiting.key_lane, waiting.bucket
RETURNING key_lane

-- name: limits
SELECT m.name, m.concurrency, m.rate, m.burst, m.declared, m.set_by, m.updated_at,
       (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name) AS used
  FROM holdfast_limits m
 ORDER BY m.name

-- name: limits_in_force
-- By name, those of tenants last, of which there may be many. The limits of the keys of a type are one, `key:TYPE`.
SELECT known.name, m.concurrency, m.rate, {tokens:m} AS tokens
  FROM (SELECT DISTINCT {key limit:name} AS name FROM holdfast_limits WHERE concurrency IS NOT NULL OR rate IS NOT NULL) AS known
  LEFT JOIN holdfast_limits m ON m.name = known.name
  LEFT JOIN holdfast_limit_tokens k ON k.bucket = known.name
 ORDER BY CASE WHEN substr(known.name, 1, 7) = 'tenant:' THEN 1 ELSE 0 END, known.name
 LIMIT {limit}

-- name: units_in_use
-- The units that running jobs hold of these limits; `full_buckets` hold all that they have.
SELECT bucket.limit_name AS name, sum(bucket.units) AS used,
       count(CASE WHEN m.concurrency <= bucket.units THEN 1 END) AS full_buckets
  FROM (SELECT bucket AS name, {key limit:bucket} AS limit_name, sum(units) AS units
          FROM holdfast_limit_units
         GROUP BY bucket) AS bucket
  JOIN holdfast_limits m ON m.name = {limit name:bucket.name else bucket.limit_name}
 GROUP BY bucket.limit_name

-- name: limit
SELECT name, concurrency, rate, burst, declared, set_by FROM holdfast_limits WHERE name = :name

-- name: changed_limits
SELECT name FROM holdfast_limits WHERE updated_at >= {now-:seconds} ORDER BY name

-- name: lock_limit
SELECT name, concurrency, rate, burst, declared, set_by FROM holdfast_limits WHERE name = :name {locked row}

-- name: put_limit
INSERT INTO holdfast_limits (name, concurrency, rate, burst, declared, set_by, updated_at)
VALUES (:name, :concurrency, :rate, :burst, :declared, :set_by, {now})
    ON CONFLICT (name) DO UPDATE
   SET concurrency = excluded.concurrency, rate = excluded.rate, burst = excluded.burst, declared = excluded.declared,
       set_by = excluded.set_by, updated_at = excluded.updated_at
RETURNING name

-- name: drop_limit
DELETE FROM holdfast_limits WHERE name = :name RETURNING name

-- name: weights
SELECT name, weight FROM holdfast_tenants WHERE weight <> 1

-- name: set_weight
-- No row: the tenant is unknown, or has this weight already.
UPDATE holdfast_tenants SET weight = :weight WHERE name = :name AND weight <> :weight RETURNING name

-- name: refill_tokens
-- The limit of these buckets has changed, and so the time at which they are full. Those without a rate are full now.
UPDATE holdfast_limit_tokens
   SET full_at = coalesce((SELECT CASE WHEN m.burst <= tokens THEN {now}
                                       WHEN m.burst - tokens < m.rate * 3153600000 THEN {now+(m.burst - tokens) / m.rate}
                                       ELSE {now+3153600000}
                                  END
                             FROM holdfast_limits m
                            WHERE m.name = {limit name:bucket}
                              AND m.rate IS NOT NULL), {now})
 WHERE bucket = :name
    OR {key limit:bucket} = :name
RETURNING bucket

-- name: prune_tokens
-- A bucket that is full again needs no row. Those that a claim writes now are left: it locks them in another order.
WITH picked AS MATERIALIZED (
    SELECT bucket AS id FROM holdfast_limit_tokens WHERE full_at <= {now} LIMIT {limit} {skip_locked}
)
DELETE FROM holdfast_limit_tokens WHERE bucket {in picked} RETURNING bucket

-- name: mark_limited
-- The running jobs that a limit is about and that hold no units of it. They are locked: none of them ends before it is
-- counted.
WITH picked AS MATERIALIZED (
    SELECT j.id
      FROM holdfast_running j
      JOIN holdfast_lanes l ON l.id = j.lane
     WHERE CASE :kind
               WHEN 'type' THEN j.type = :about
               WHEN 'queue' THEN j.queue = :about
               WHEN 'tenant' THEN j.tenant = :about
               WHEN 'key' THEN j.limit_key IS NOT NULL AND (j.type = :about OR j.type || ' ' || j.limit_key = :about)
               ELSE EXISTS (SELECT 1 FROM {pairs:l.limits} AS p WHERE p.key = :name)
           END
       AND NOT EXISTS (SELECT 1
                         FROM holdfast_limit_units u
                        WHERE u.job_id = j.id
                          AND u.bucket = CASE :kind WHEN 'key' THEN 'key:' || j.type || ' ' || j.limit_key ELSE :name END)
)
UPDATE holdfast_jobs SET limited = TRUE WHERE id {in picked} AND state = 'running' RETURNING id

-- name: count_running
-- Jobs that run already when their limit is set hold units from then on. Another process may have counted them before they
-- were locked.
INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT CASE :kind WHEN 'key' THEN 'key:' || j.type || ' ' || j.limit_key ELSE :name END, j.id,
       coalesce((SELECT CAST(p.value AS integer) FROM {pairs:l.limits} AS p WHERE p.key = :name), 1)
  FROM holdfast_jobs j
  JOIN holdfast_lanes l ON l.id = j.lane
 WHERE j.id {in:ids uuid}
   AND NOT EXISTS (SELECT 1
                     FROM holdfast_limit_units u
                    WHERE u.job_id = j.id
                      AND u.bucket = CASE :kind WHEN 'key' THEN 'key:' || j.type || ' ' || j.limit_key ELSE :name END)
RETURNING job_id

-- name: limits_of_job
-- `used`: units that all running jobs hold, `held`: those of this job.
SELECT m.name, m.concurrency, m.rate, m.burst, asked.units, asked.bucket, {tokens:m} AS tokens,
       (SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = asked.bucket) AS used,
       (SELECT u.units FROM holdfast_limit_units u WHERE u.bucket = asked.bucket AND u.job_id = :id) AS held
  FROM {rows:asked(bucket text, name text, units integer)}
  JOIN holdfast_limits m ON m.name = {limit name:asked.bucket else asked.name}
  LEFT JOIN holdfast_limit_tokens k ON k.bucket = asked.bucket
