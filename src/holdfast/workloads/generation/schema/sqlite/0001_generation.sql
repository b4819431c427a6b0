-- The credits of a user, as the newest ledger entry has them. The quota counts images per day and month of the time zone
-- in the settings.
CREATE TABLE holdfast_generation_account (
    tenant       text    NOT NULL,
    user_id      text    NOT NULL,
    seq          integer NOT NULL DEFAULT 0,
    balance      integer NOT NULL DEFAULT 0 CHECK (balance >= 0),
    reserved     integer NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    day          text    NOT NULL DEFAULT '',
    day_images   integer NOT NULL DEFAULT 0,
    month        text    NOT NULL DEFAULT '',
    month_images integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, user_id),
    CHECK (reserved <= balance)
) STRICT;

-- The ledger: each row moves `amount` from the account `debit` to the account `credit`, so that all accounts together
-- are always zero. `balance` and `reserved` are those of the user after it. Rows are never changed.
CREATE TABLE holdfast_generation_entry (
    tenant    text    NOT NULL,
    user_id   text    NOT NULL,
    seq       integer NOT NULL,
    kind      text    NOT NULL,
    amount    integer NOT NULL CHECK (amount > 0),
    debit     text    NOT NULL,
    credit    text    NOT NULL,
    balance   integer NOT NULL CHECK (balance >= 0),
    reserved  integer NOT NULL CHECK (reserved BETWEEN 0 AND balance),
    job_id    text,
    reason    text,
    grant_key text,
    at        integer NOT NULL,
    PRIMARY KEY (tenant, user_id, seq),
    CHECK (kind = 'grant'   AND debit = 'issued'    AND credit = 'available' AND job_id IS NULL
        OR kind = 'reserve' AND debit = 'available' AND credit = 'reserved'  AND job_id IS NOT NULL
        OR kind = 'commit'  AND debit = 'reserved'  AND credit = 'spent'     AND job_id IS NOT NULL
        OR kind = 'release' AND debit = 'reserved'  AND credit = 'available' AND job_id IS NOT NULL
        OR kind = 'forfeit' AND debit = 'reserved'  AND credit = 'forfeited' AND job_id IS NOT NULL)
) STRICT;
CREATE UNIQUE INDEX holdfast_generation_entry_job ON holdfast_generation_entry (job_id, kind) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX holdfast_generation_entry_grant ON holdfast_generation_entry (tenant, grant_key)
    WHERE grant_key IS NOT NULL;

-- What was requested, by the id of its first job. `job_id` is the newest: a redrive makes another one. `credits` are
-- reserved for it, `charged` is what all of them have cost.
CREATE TABLE holdfast_generation_request (
    id              text    PRIMARY KEY,
    tenant          text    NOT NULL,
    user_id         text    NOT NULL,
    job_id          text    NOT NULL UNIQUE,
    status          text    NOT NULL,
    prompt          text    NOT NULL,
    negative_prompt text,
    width           integer NOT NULL,
    height          integer NOT NULL,
    count           integer NOT NULL,
    seed            integer NOT NULL,
    style           text,
    provider        text    NOT NULL,
    credits         integer NOT NULL,
    charged         integer NOT NULL DEFAULT 0,
    retry_count     integer NOT NULL DEFAULT 0,
    error_code      text,
    error_message   text,
    created_at      integer NOT NULL,
    updated_at      integer NOT NULL,
    started_at      integer,
    finished_at     integer
) STRICT;
CREATE INDEX holdfast_generation_request_page ON holdfast_generation_request (tenant, user_id, id);
CREATE INDEX holdfast_generation_request_status ON holdfast_generation_request (tenant, user_id, status, id);
CREATE INDEX holdfast_generation_request_queued ON holdfast_generation_request (tenant, id) WHERE status = 'queued';
CREATE INDEX holdfast_generation_request_finished ON holdfast_generation_request (tenant, finished_at)
    WHERE status = 'completed';

CREATE TABLE holdfast_generation_asset (
    id            text    PRIMARY KEY,
    tenant        text    NOT NULL,
    user_id       text    NOT NULL,
    request_id    text    NOT NULL REFERENCES holdfast_generation_request (id),
    job_id        text    NOT NULL,
    position      integer NOT NULL,
    storage_key   text    NOT NULL UNIQUE,
    thumbnail_key text UNIQUE,
    content_type  text    NOT NULL,
    width         integer NOT NULL,
    height        integer NOT NULL,
    bytes         integer NOT NULL,
    sha256        text    NOT NULL,
    seed          integer NOT NULL,
    prompt        text    NOT NULL,
    search        text    NOT NULL,
    favorite      integer NOT NULL DEFAULT 0,
    created_at    integer NOT NULL,
    UNIQUE (job_id, position)
) STRICT;
CREATE INDEX holdfast_generation_asset_page ON holdfast_generation_asset (tenant, user_id, id);
CREATE INDEX holdfast_generation_asset_favorite ON holdfast_generation_asset (tenant, user_id, id) WHERE favorite;
CREATE INDEX holdfast_generation_asset_request ON holdfast_generation_asset (request_id, position);

CREATE TABLE holdfast_generation_tag (
    tenant   text NOT NULL,
    user_id  text NOT NULL,
    tag      text NOT NULL,
    asset_id text NOT NULL REFERENCES holdfast_generation_asset (id),
    PRIMARY KEY (tenant, user_id, tag, asset_id)
) STRICT;
CREATE INDEX holdfast_generation_tag_asset ON holdfast_generation_tag (asset_id, tag);

-- What providers charge, by idempotency key: a repeated call is not counted again.
CREATE TABLE holdfast_generation_charge (
    call_key text    PRIMARY KEY,
    tenant   text    NOT NULL,
    provider text    NOT NULL,
    micros   integer NOT NULL CHECK (micros >= 0),
    at       integer NOT NULL
) STRICT;
CREATE INDEX holdfast_generation_charge_at ON holdfast_generation_charge (tenant, at);

CREATE TRIGGER holdfast_generation_entry_insert BEFORE INSERT ON holdfast_generation_entry
    WHEN NOT EXISTS (
        SELECT 1 FROM holdfast_generation_account AS before
         WHERE before.tenant = NEW.tenant AND before.user_id = NEW.user_id AND NEW.seq = before.seq + 1
           AND NEW.balance = before.balance
               + CASE WHEN NEW.kind = 'grant' THEN NEW.amount WHEN NEW.kind IN ('commit', 'forfeit') THEN -NEW.amount ELSE 0 END
           AND NEW.reserved = before.reserved
               + CASE NEW.kind WHEN 'reserve' THEN NEW.amount WHEN 'grant' THEN 0 ELSE -NEW.amount END)
BEGIN
    SELECT RAISE(ABORT, 'HG001 the entry does not follow from the one before it');
END;
CREATE TRIGGER holdfast_generation_entry_settle BEFORE INSERT ON holdfast_generation_entry
    WHEN NEW.kind IN ('commit', 'release', 'forfeit')
     AND NEW.amount > (SELECT coalesce(sum(CASE kind WHEN 'reserve' THEN amount ELSE -amount END), 0)
                         FROM holdfast_generation_entry
                        WHERE job_id = NEW.job_id AND tenant = NEW.tenant AND user_id = NEW.user_id)
BEGIN
    SELECT RAISE(ABORT, 'HG001 the job has no such reserved credits');
END;
-- INSERT OR REPLACE would delete the other entry without a word.
CREATE TRIGGER holdfast_generation_entry_twice BEFORE INSERT ON holdfast_generation_entry
    WHEN EXISTS (SELECT 1 FROM holdfast_generation_entry WHERE job_id = NEW.job_id AND kind = NEW.kind)
      OR EXISTS (SELECT 1 FROM holdfast_generation_entry WHERE tenant = NEW.tenant AND grant_key = NEW.grant_key)
BEGIN
    SELECT RAISE(ABORT, 'HG001 there is such an entry already');
END;
CREATE TRIGGER holdfast_generation_entry_book AFTER INSERT ON holdfast_generation_entry
BEGIN
    UPDATE holdfast_generation_account
       SET seq = NEW.seq, balance = NEW.balance, reserved = NEW.reserved
     WHERE tenant = NEW.tenant AND user_id = NEW.user_id;
END;
CREATE TRIGGER holdfast_generation_entry_change BEFORE UPDATE ON holdfast_generation_entry
BEGIN
    SELECT RAISE(ABORT, 'HG001 ledger entries are never changed');
END;
CREATE TRIGGER holdfast_generation_entry_delete BEFORE DELETE ON holdfast_generation_entry
BEGIN
    SELECT RAISE(ABORT, 'HG001 ledger entries are never changed');
END;
CREATE TRIGGER holdfast_generation_account_change BEFORE UPDATE OF tenant, user_id, seq, balance, reserved
    ON holdfast_generation_account
    WHEN NEW.tenant <> OLD.tenant OR NEW.user_id <> OLD.user_id OR NEW.seq <> OLD.seq + 1
      OR NOT EXISTS (
        SELECT 1 FROM holdfast_generation_entry
         WHERE tenant = NEW.tenant AND user_id = NEW.user_id AND seq = NEW.seq
           AND balance = NEW.balance AND reserved = NEW.reserved)
BEGIN
    SELECT RAISE(ABORT, 'HG001 credits change by a ledger entry only');
END;
CREATE TRIGGER holdfast_generation_account_delete BEFORE DELETE ON holdfast_generation_account
BEGIN
    SELECT RAISE(ABORT, 'HG001 an account is never deleted');
END;
CREATE TRIGGER holdfast_generation_account_insert BEFORE INSERT ON holdfast_generation_account
    WHEN NEW.seq <> 0 OR NEW.balance <> 0 OR NEW.reserved <> 0
      OR EXISTS (SELECT 1 FROM holdfast_generation_account WHERE tenant = NEW.tenant AND user_id = NEW.user_id)
BEGIN
    SELECT RAISE(ABORT, 'HG001 an account begins empty');
END;
