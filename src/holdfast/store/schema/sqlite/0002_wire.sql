-- What speaking to the outside needs: keys, webhooks, the audit of what operators did, and where readers of the events are.

-- Only a digest of the secret part is kept; the id is public and finds the row.
CREATE TABLE keys (
    id              text    NOT NULL PRIMARY KEY,
    kind            text    NOT NULL CHECK (kind IN ('client', 'worker', 'admin')),
    tenant          text    NOT NULL,
    name            text,
    subject         text,                      -- the user it stands for
    digest          text    NOT NULL,
    scopes          text    NOT NULL,
    worker_id       text,                      -- a worker's key belongs to one worker
    rate_per_second real,
    expires_in      real,                      -- seconds, as it was made: whoever takes over from it gets as many
    created_at      integer NOT NULL,
    expires_at      integer,
    revoked_at      integer,
    used_at         integer,
    CONSTRAINT keys_worker CHECK ((kind = 'worker') = (worker_id IS NOT NULL))
) STRICT;

CREATE INDEX keys_of_worker ON keys (worker_id) WHERE worker_id IS NOT NULL;

-- A browser that has signed in with a key. Only a digest of what its cookie holds is kept.
CREATE TABLE sessions (
    digest     text    NOT NULL PRIMARY KEY,
    key_id     text    NOT NULL,
    created_at integer NOT NULL,
    expires_at integer NOT NULL,
    used_at    integer
) STRICT;

CREATE INDEX sessions_over ON sessions (expires_at);

-- The answer to a claim that carried a request id: a repeat gets the same leases.
CREATE TABLE claims (
    worker_id  text    NOT NULL,
    request_id text    NOT NULL,
    claimed_at integer NOT NULL,
    leases     text    NOT NULL,
    repeated   integer NOT NULL DEFAULT FALSE, -- it may have been heard twice: nobody takes these leases back
    PRIMARY KEY (worker_id, request_id)
) STRICT;

CREATE INDEX claims_old ON claims (claimed_at);

-- What was last written about a worker into the events: see `note_workers`.
ALTER TABLE workers ADD COLUMN told text;
ALTER TABLE workers ADD COLUMN told_at integer;

-- Each line holds a digest of itself and of the line before, so that a change or a gap shows.
CREATE TABLE audit (
    seq      integer NOT NULL PRIMARY KEY,
    at       integer NOT NULL,
    actor    text    NOT NULL,
    action   text    NOT NULL,
    subject  text,
    detail   text    NOT NULL,
    previous text    NOT NULL,
    digest   text    NOT NULL
) STRICT;

CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'HF002 audit is append-only');
END;

CREATE TRIGGER audit_kept BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'HF002 audit is append-only');
END;

CREATE TABLE webhooks (
    id              text    NOT NULL PRIMARY KEY,
    tenant          text    NOT NULL,
    name            text,
    url             text    NOT NULL,
    secrets         text    NOT NULL,      -- the newest first; all of them sign while one takes over from another
    wanted          text    NOT NULL,      -- which events, of which job types and queues
    enabled         integer NOT NULL DEFAULT TRUE,
    disabled_reason text,
    failing_since   integer,
    created_at      integer NOT NULL
) STRICT;

CREATE TABLE deliveries (
    id          text    NOT NULL PRIMARY KEY,
    webhook_id  text    NOT NULL,
    tenant      text    NOT NULL,
    job_id      text    NOT NULL,
    seq         integer NOT NULL,
    event       text    NOT NULL,
    body        text    NOT NULL,
    state       text    NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    tries       integer NOT NULL DEFAULT 0,
    log         text    NOT NULL,         -- the last tries: when, how long, what came back
    created_at  integer NOT NULL,
    next_at     integer NOT NULL,
    finished_at integer,
    UNIQUE (webhook_id, job_id, seq)
) STRICT;

CREATE INDEX deliveries_due ON deliveries (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX deliveries_of ON deliveries (webhook_id, id);
CREATE INDEX deliveries_old ON deliveries (next_at);

-- How far each reader of the events has come.
CREATE TABLE readers (
    name    text    NOT NULL PRIMARY KEY,
    pos     integer NOT NULL,
    job_id  text    NOT NULL,
    seq     integer NOT NULL,
    read_at integer NOT NULL
) STRICT;

-- When an alert of each kind was last sent, and how many have been held back since.
CREATE TABLE alerts (
    kind    text    NOT NULL PRIMARY KEY,
    sent_at integer,
    held    integer NOT NULL DEFAULT 0,
    memory  text                          -- the latest failures of each job type, for the kind that counts them
) STRICT;

-- What all servers before one database share to sign with, made by the first that needs it.
CREATE TABLE secrets (
    name  text NOT NULL PRIMARY KEY,
    value text NOT NULL
) STRICT;
