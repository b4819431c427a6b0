-- name: account
SELECT balance, reserved FROM holdfast_generation_account WHERE tenant = :tenant AND user_id = :user_id

-- name: open_account
INSERT INTO holdfast_generation_account (tenant, user_id)
SELECT :tenant, :user_id
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_generation_account WHERE tenant = :tenant AND user_id = :user_id)
ON CONFLICT (tenant, user_id) DO NOTHING
RETURNING user_id

-- name: lock_accounts
-- In one order, so that two transactions do not wait for each other.
SELECT account.tenant, account.user_id, balance, reserved, day, day_images, month, month_images
  FROM holdfast_generation_account AS account
  JOIN {rows:wanted(tenant text, user_id text)} ON account.tenant = wanted.tenant AND account.user_id = wanted.user_id
 ORDER BY account.tenant, account.user_id {locked row}

-- name: set_quota
UPDATE holdfast_generation_account AS account
   SET day = used.day, day_images = used.day_images, month = used.month, month_images = used.month_images
  FROM {rows:used(tenant text, user_id text, day text, day_images bigint, month text, month_images bigint)}
 WHERE account.tenant = used.tenant AND account.user_id = used.user_id

-- name: add_entries
-- Of locked accounts. `place` counts from 1 for each of them, and changes are those of all its entries so far.
INSERT INTO holdfast_generation_entry
       (tenant, user_id, seq, kind, amount, debit, credit, balance, reserved, job_id, reason, at)
SELECT account.tenant, account.user_id, account.seq + made.place, made.kind, made.amount, made.debit, made.credit,
       account.balance + made.balance_change, account.reserved + made.reserved_change, made.job_id, made.reason, {now}
  FROM {rows:made(tenant text, user_id text, place bigint, kind text, amount bigint, debit text, credit text,
                  balance_change bigint, reserved_change bigint, job_id text, reason text)}
  JOIN holdfast_generation_account AS account ON account.tenant = made.tenant AND account.user_id = made.user_id
 ORDER BY account.tenant, account.user_id, made.place
RETURNING seq, balance

-- name: add_grant
-- Of a locked account. No row: another transaction has just used the key for another user.
INSERT INTO holdfast_generation_entry
       (tenant, user_id, seq, kind, amount, debit, credit, balance, reserved, reason, grant_key, at)
SELECT tenant, user_id, seq + 1, 'grant', CAST(:amount AS bigint), 'issued', 'available', balance + :amount, reserved,
       :reason, :grant_key, {now}
  FROM holdfast_generation_account WHERE tenant = :tenant AND user_id = :user_id
ON CONFLICT (tenant, grant_key) WHERE grant_key IS NOT NULL DO NOTHING
RETURNING user_id, amount, seq, balance

-- name: reservation
-- What is reserved for a job and not settled yet.
SELECT CAST(coalesce(sum(CASE kind WHEN 'reserve' THEN amount ELSE -amount END), 0) AS bigint) AS credits
  FROM holdfast_generation_entry WHERE job_id = :job_id

-- name: entry_of_grant
SELECT user_id, seq, amount, balance, reason FROM holdfast_generation_entry
 WHERE tenant = :tenant AND grant_key = :grant_key

-- name: statement
SELECT seq, kind, amount, job_id, reason, at FROM holdfast_generation_entry
 WHERE tenant = :tenant AND user_id = :user_id AND seq < :before
 ORDER BY seq DESC LIMIT {limit}

-- name: accounts_after
-- `newest` is of the same moment as the account.
SELECT tenant, user_id, seq, balance, reserved,
       (SELECT max(entry.seq) FROM holdfast_generation_entry AS entry
         WHERE entry.tenant = account.tenant AND entry.user_id = account.user_id) AS newest
  FROM holdfast_generation_account AS account
 WHERE tenant > :tenant OR tenant = :tenant AND user_id > :user_id
 ORDER BY tenant, user_id LIMIT {limit}

-- name: without_account
SELECT DISTINCT tenant, user_id FROM holdfast_generation_entry AS entry
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_generation_account AS account
                    WHERE account.tenant = entry.tenant AND account.user_id = entry.user_id)
 ORDER BY tenant, user_id LIMIT {limit}

-- name: unsettled
-- Of these jobs, those that have ended and still have reserved credits. One statement: all is of the same moment.
SELECT job_id FROM holdfast_generation_entry AS entry
 WHERE job_id {in:ids text}
   AND NOT EXISTS (SELECT 1 FROM holdfast_generation_request AS request
                    WHERE request.job_id = entry.job_id AND request.finished_at IS NULL)
 GROUP BY job_id
HAVING sum(CASE kind WHEN 'reserve' THEN amount ELSE -amount END) <> 0
 ORDER BY job_id

-- name: unreserved
-- Unfinished requests of a user that do not have the credits reserved that they should have.
SELECT job_id FROM holdfast_generation_request AS request
 WHERE tenant = :tenant AND user_id = :user_id AND finished_at IS NULL
   AND credits <> (SELECT coalesce(sum(CASE kind WHEN 'reserve' THEN amount ELSE -amount END), 0)
                     FROM holdfast_generation_entry AS entry WHERE entry.job_id = request.job_id)
 ORDER BY job_id LIMIT {limit}

-- name: entries_after
SELECT seq, kind, amount, debit, credit, balance, reserved, job_id FROM holdfast_generation_entry
 WHERE tenant = :tenant AND user_id = :user_id AND seq > :after
 ORDER BY seq LIMIT {limit}

-- name: add_charge
INSERT INTO holdfast_generation_charge (call_key, tenant, provider, micros, at)
VALUES (:call_key, :tenant, :provider, :micros, {now})
ON CONFLICT (call_key) DO NOTHING
RETURNING call_key

-- name: charges
SELECT provider, count(*) AS images, CAST(sum(micros) AS bigint) AS micros FROM holdfast_generation_charge
 WHERE tenant = :tenant AND at >= {now-:seconds}
 GROUP BY provider ORDER BY provider
