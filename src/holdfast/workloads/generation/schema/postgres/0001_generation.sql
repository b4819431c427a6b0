-- The credits of a user, as the newest ledger entry has them. The quota counts images per day and month of the time zone
-- in the settings.
CREATE TABLE holdfast_generation_account (
    tenant       text   NOT NULL,
    user_id      text   NOT NULL,
    seq          bigint NOT NULL DEFAULT 0,
    balance      bigint NOT NULL DEFAULT 0 CHECK (balance >= 0),
    reserved     bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    day          text   NOT NULL DEFAULT '',
    day_images   bigint NOT NULL DEFAULT 0,
    month        text   NOT NULL DEFAULT '',
    month_images bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, user_id),
    CHECK (reserved <= balance)
);

-- The ledger: each row moves `amount` from the account `debit` to the account `credit`, so that all accounts together
-- are always zero. `balance` and `reserved` are those of the user after it. Rows are never changed.
CREATE TABLE holdfast_generation_entry (
    tenant    text        NOT NULL,
    user_id   text        NOT NULL,
    seq       bigint      NOT NULL,
    kind      text        NOT NULL,
    amount    bigint      NOT NULL CHECK (amount > 0),
    debit     text        NOT NULL,
    credit    text        NOT NULL,
    balance   bigint      NOT NULL CHECK (balance >= 0),
    reserved  bigint      NOT NULL CHECK (reserved BETWEEN 0 AND balance),
    job_id    text,
    reason    text,
    grant_key text,
    at        timestamptz NOT NULL,
    PRIMARY KEY (tenant, user_id, seq),
    CHECK (kind = 'grant'   AND debit = 'issued'    AND credit = 'available' AND job_id IS NULL
        OR kind = 'reserve' AND debit = 'available' AND credit = 'reserved'  AND job_id IS NOT NULL
        OR kind = 'commit'  AND debit = 'reserved'  AND credit = 'spent'     AND job_id IS NOT NULL
        OR kind = 'release' AND debit = 'reserved'  AND credit = 'available' AND job_id IS NOT NULL
        OR kind = 'forfeit' AND debit = 'reserved'  AND credit = 'forfeited' AND job_id IS NOT NULL)
);
CREATE UNIQUE INDEX holdfast_generation_entry_job ON holdfast_generation_entry (job_id, kind) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX holdfast_generation_entry_grant ON holdfast_generation_entry (tenant, grant_key)
    WHERE grant_key IS NOT NULL;

-- What was requested, by the id of its first job. `job_id` is the newest: a redrive makes another one. `credits` are
-- reserved for it, `charged` is what all of them have cost.
CREATE TABLE holdfast_generation_request (
    id              text        PRIMARY KEY,
    tenant          text        NOT NULL,
    user_id         text        NOT NULL,
    job_id          text        NOT NULL UNIQUE,
    status          text        NOT NULL,
    prompt          text        NOT NULL,
    negative_prompt text,
    width           integer     NOT NULL,
    height          integer     NOT NULL,
    count           integer     NOT NULL,
    seed            bigint      NOT NULL,
    style           text,
    provider        text        NOT NULL,
    credits         bigint      NOT NULL,
    charged         bigint      NOT NULL DEFAULT 0,
    retry_count     integer     NOT NULL DEFAULT 0,
    error_code      text,
    error_message   text,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz
);
CREATE INDEX holdfast_generation_request_page ON holdfast_generation_request (tenant, user_id, id);
CREATE INDEX holdfast_generation_request_status ON holdfast_generation_request (tenant, user_id, status, id);
CREATE INDEX holdfast_generation_request_queued ON holdfast_generation_request (tenant, id) WHERE status = 'queued';
CREATE INDEX holdfast_generation_request_finished ON holdfast_generation_request (tenant, finished_at)
    WHERE status = 'completed';

CREATE TABLE holdfast_generation_asset (
    id            text        PRIMARY KEY,
    tenant        text        NOT NULL,
    user_id       text        NOT NULL,
    request_id    text        NOT NULL REFERENCES holdfast_generation_request (id),
    job_id        text        NOT NULL,
    position      integer     NOT NULL,
    storage_key   text        NOT NULL UNIQUE,
    thumbnail_key text UNIQUE,
    content_type  text        NOT NULL,
    width         integer     NOT NULL,
    height        integer     NOT NULL,
    bytes         bigint      NOT NULL,
    sha256        text        NOT NULL,
    seed          bigint      NOT NULL,
    prompt        text        NOT NULL,
    search        text        NOT NULL,
    favorite      boolean     NOT NULL DEFAULT FALSE,
    created_at    timestamptz NOT NULL,
    UNIQUE (job_id, position)
);
CREATE INDEX holdfast_generation_asset_page ON holdfast_generation_asset (tenant, user_id, id);
CREATE INDEX holdfast_generation_asset_favorite ON holdfast_generation_asset (tenant, user_id, id) WHERE favorite;
CREATE INDEX holdfast_generation_asset_request ON holdfast_generation_asset (request_id, position);

CREATE TABLE holdfast_generation_tag (
    tenant   text NOT NULL,
    user_id  text NOT NULL,
    tag      text NOT NULL,
    asset_id text NOT NULL REFERENCES holdfast_generation_asset (id),
    PRIMARY KEY (tenant, user_id, tag, asset_id)
);
CREATE INDEX holdfast_generation_tag_asset ON holdfast_generation_tag (asset_id, tag);

-- What providers charge, by idempotency key: a repeated call is not counted again.
CREATE TABLE holdfast_generation_charge (
    call_key text        PRIMARY KEY,
    tenant   text        NOT NULL,
    provider text        NOT NULL,
    micros   bigint      NOT NULL CHECK (micros >= 0),
    at       timestamptz NOT NULL
);
CREATE INDEX holdfast_generation_charge_at ON holdfast_generation_charge (tenant, at);

CREATE FUNCTION holdfast_generation_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'HG001 %', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- Once for all rows of a statement. Balances that do not follow are refused, whatever has computed them. Other rows are
-- looked up one by one: a plan that was made while the table was small would read all of it.
CREATE FUNCTION holdfast_generation_book_entries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM made
                WHERE balance IS DISTINCT FROM CASE kind WHEN 'grant' THEN amount WHEN 'commit' THEN -amount
                                               WHEN 'forfeit' THEN -amount ELSE 0 END
                      + coalesce((SELECT entry.balance FROM holdfast_generation_entry AS entry
                                   WHERE entry.tenant = made.tenant AND entry.user_id = made.user_id
                                     AND entry.seq = made.seq - 1), CASE WHEN seq = 1 THEN 0 END)
                   OR reserved IS DISTINCT FROM CASE kind WHEN 'reserve' THEN amount WHEN 'grant' THEN 0
                                                ELSE -amount END
                      + coalesce((SELECT entry.reserved FROM holdfast_generation_entry AS entry
                                   WHERE entry.tenant = made.tenant AND entry.user_id = made.user_id
                                     AND entry.seq = made.seq - 1), CASE WHEN seq = 1 THEN 0 END)) THEN
        RAISE EXCEPTION 'HG001 the entry does not follow from the one before it'
              USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF EXISTS (SELECT 1 FROM made
                WHERE kind IN ('commit', 'release', 'forfeit')
                  AND 0 > (SELECT sum(CASE entry.kind WHEN 'reserve' THEN entry.amount ELSE -entry.amount END)
                             FROM holdfast_generation_entry AS entry
                            WHERE entry.job_id = made.job_id AND entry.tenant = made.tenant
                              AND entry.user_id = made.user_id)) THEN
        RAISE EXCEPTION 'HG001 the job has no such reserved credits' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    UPDATE holdfast_generation_account AS account
       SET seq = last.seq, balance = last.balance, reserved = last.reserved
      FROM (SELECT DISTINCT ON (tenant, user_id) tenant, user_id, seq, balance, reserved
              FROM made ORDER BY tenant, user_id, seq DESC) AS last
     WHERE account.tenant = last.tenant AND account.user_id = last.user_id;
    IF EXISTS (SELECT 1 FROM made
                WHERE NOT EXISTS (SELECT 1 FROM holdfast_generation_account AS account
                                   WHERE account.tenant = made.tenant AND account.user_id = made.user_id)) THEN
        RAISE EXCEPTION 'HG001 the entry is of no account' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION holdfast_generation_check_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.tenant <> OLD.tenant OR NEW.user_id <> OLD.user_id OR NEW.seq <= OLD.seq
       OR NOT EXISTS (SELECT 1 FROM holdfast_generation_entry
                       WHERE tenant = NEW.tenant AND user_id = NEW.user_id AND seq = NEW.seq
                         AND balance = NEW.balance AND reserved = NEW.reserved) THEN
        RAISE EXCEPTION 'HG001 credits change by a ledger entry only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER holdfast_generation_entry_book AFTER INSERT ON holdfast_generation_entry
    REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION holdfast_generation_book_entries();
CREATE TRIGGER holdfast_generation_entry_change BEFORE UPDATE OR DELETE ON holdfast_generation_entry
    FOR EACH ROW EXECUTE FUNCTION holdfast_generation_refuse('ledger entries are never changed');
CREATE TRIGGER holdfast_generation_entry_truncate BEFORE TRUNCATE ON holdfast_generation_entry
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast_generation_refuse('ledger entries are never changed');
CREATE TRIGGER holdfast_generation_account_change BEFORE UPDATE OF tenant, user_id, seq, balance, reserved
    ON holdfast_generation_account FOR EACH ROW EXECUTE FUNCTION holdfast_generation_check_account();
CREATE TRIGGER holdfast_generation_account_delete BEFORE DELETE ON holdfast_generation_account
    FOR EACH ROW EXECUTE FUNCTION holdfast_generation_refuse('an account is never deleted');
CREATE TRIGGER holdfast_generation_account_truncate BEFORE TRUNCATE ON holdfast_generation_account
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast_generation_refuse('an account is never deleted');
CREATE TRIGGER holdfast_generation_account_insert BEFORE INSERT ON holdfast_generation_account
    FOR EACH ROW WHEN (NEW.seq <> 0 OR NEW.balance <> 0 OR NEW.reserved <> 0)
    EXECUTE FUNCTION holdfast_generation_refuse('an account begins empty');
