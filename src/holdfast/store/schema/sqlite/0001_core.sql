-- Holdfast's tables. They refuse what the lifecycle of a job does not allow, even by hand.
-- Times are microseconds since 1970, booleans 0 and 1.

-- The database itself -------------------------------------------------------------------------------------------------

-- One row, written once: it tells this database from others. Connections compare it.
CREATE TABLE holdfast_database_identity (
    id text PRIMARY KEY NOT NULL
) STRICT;
INSERT INTO holdfast_database_identity (id) VALUES (lower(hex(randomblob(16))));

-- What jobs are made of: types, lifecycles, policies, lanes, queues ---------------------------------------------------

-- `schema` is that of the payload. `conflict` is what another app declares under this name. `needs` names the extensions
-- that have hooks on this type, as a JSON array; NULL: none has. `needs_by` says so for each app that has declared it.
CREATE TABLE holdfast_job_types (
    name        text    NOT NULL PRIMARY KEY,
    lifecycle   text    NOT NULL,
    queue       text    NOT NULL,
    policy      text    NOT NULL,
    requires    text    NOT NULL,
    prefers     text    NOT NULL,
    schema      text,
    declared_by text,
    conflict    text,
    needs       text,
    needs_by    text,
    updated_at  integer NOT NULL
) STRICT;

-- Lifecycles that apps declare beside the built-in ones, so that processes without the app know them too.
CREATE TABLE holdfast_lifecycles (
    name       text    NOT NULL PRIMARY KEY,
    body       text    NOT NULL,
    updated_at integer NOT NULL
) STRICT;

-- Policies and lanes are interned: rows are written once, never changed, and jobs point at them.
-- What the reaper judges by stands in columns, the rest of a policy in its body. `moves` are the legal moves of the
-- lifecycle as bits: a process that cannot read the body, because a newer version wrote it, goes on by these.
CREATE TABLE holdfast_policies (
    id                   integer PRIMARY KEY AUTOINCREMENT,
    digest               text    NOT NULL UNIQUE,
    body                 text    NOT NULL,
    moves                integer NOT NULL,
    waits_for_offline    integer NOT NULL,
    offline_seconds      real    NOT NULL,
    no_progress_seconds  real,
    max_runtime_seconds  real,
    cancel_grace_seconds real    NOT NULL
) STRICT;

-- A lane is all jobs that the same workers may take. A claim picks lanes first, then the head of each,
-- so jobs that a worker may not take are never walked through. The digest is of all other columns: together they may be
-- longer than an index of PostgreSQL can hold.
CREATE TABLE holdfast_lanes (
    id            integer PRIMARY KEY AUTOINCREMENT,
    digest        text    NOT NULL UNIQUE,
    tenant        text    NOT NULL,
    queue         text    NOT NULL,
    type          text    NOT NULL,
    requires      text    NOT NULL,
    prefers       text    NOT NULL,
    defer_seconds real    NOT NULL
) STRICT;

CREATE INDEX holdfast_lanes_of_queue ON holdfast_lanes (tenant, queue, type);

CREATE TABLE holdfast_queues (
    tenant    text    NOT NULL,
    name      text    NOT NULL,
    paused_at integer,
    paused_by text,
    PRIMARY KEY (tenant, name)
) STRICT;

-- Workers -------------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_workers (
    id                text    NOT NULL PRIMARY KEY,
    name              text,
    kind              text    NOT NULL,
    tenants           text,
    capabilities      text    NOT NULL,
    offers            text    NOT NULL,
    metadata          text    NOT NULL,
    claim_scopes      text,             -- what claims over HTTP ask for: job types and queues
    enabled           integer NOT NULL DEFAULT TRUE,
    liveness          text    NOT NULL CHECK (liveness IN ('active', 'idle', 'busy', 'offline')),
    slots             integer,
    registered_at     integer NOT NULL,
    last_heartbeat_at integer,
    heartbeat_seconds real    NOT NULL,
    offline_seconds   real    NOT NULL,
    told              text,             -- what was last written about it into the events: see `note_workers`
    told_at           integer
) STRICT;

-- The names of worker processes that ended long ago, for the record of who ran what.
CREATE TABLE holdfast_past_workers (
    id   text NOT NULL PRIMARY KEY,
    name text NOT NULL
) STRICT;

-- The answer to a claim that carried a request id: a repeat gets the same leases.
CREATE TABLE holdfast_claims (
    worker_id  text    NOT NULL,
    request_id text    NOT NULL,
    claimed_at integer NOT NULL,
    leases     text    NOT NULL,
    repeated   integer NOT NULL DEFAULT FALSE, -- it may have been answered twice: these leases are not taken back
    PRIMARY KEY (worker_id, request_id)
) STRICT;

CREATE INDEX holdfast_claims_old ON holdfast_claims (claimed_at);

-- Jobs ----------------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_jobs (
    id                  text    NOT NULL PRIMARY KEY,
    tenant              text    NOT NULL,
    type                text    NOT NULL,
    queue               text    NOT NULL,
    lane                integer NOT NULL,
    lifecycle           text    NOT NULL,
    policy              integer NOT NULL,
    moves               integer NOT NULL,         -- a bit per legal pair of states, fixed at insert
    state               text    NOT NULL,
    came_from           text,                     -- the state before this one
    reason              text,                     -- why it is in this state
    due                 integer,                  -- TRUE: claimable now; FALSE: waits for run_at; NULL: neither
    priority            integer NOT NULL CHECK (priority BETWEEN -100 AND 100),
    version             integer NOT NULL,         -- the number of its events
    pos                 integer NOT NULL DEFAULT 0,  -- of its last event; PostgreSQL only
    epoch               integer NOT NULL DEFAULT 0,
    attempt             integer NOT NULL DEFAULT 0,
    max_attempts        integer NOT NULL,
    failures            integer NOT NULL DEFAULT 0,
    lost                integer NOT NULL DEFAULT 0,
    run_at              integer NOT NULL,
    created_at          integer NOT NULL,
    updated_at          integer NOT NULL,
    started_at          integer,
    claimed_at          integer,
    progress_at         integer,
    finished_at         integer,
    cancel_requested_at integer,
    lease_seconds       real    NOT NULL,
    late_writes         integer NOT NULL,
    lease_worker        text,
    lease_instance      text,
    lease_token         text,
    lease_expires_at    integer,
    last_worker         text,                     -- the lease before, kept for the record of the attempt
    last_instance       text,
    last_token          text,
    last_claimed_at     integer,
    idempotency_key     text,
    key_live            integer,
    fingerprint         text,
    payload             text    NOT NULL,
    result              text,
    error               text,
    step                text,
    percent             real    CHECK (percent BETWEEN 0 AND 100),
    counters            text,
    eta_at              integer,
    checkpoint          text,
    tags                text,
    trace               text,
    partition_key       text,
    subject             text,
    redrive_of          text,
    root_id             text,
    parent_id           text,
    needs               text,                     -- extensions whose hooks every move runs, as JSON
    woken_epoch         integer,                    -- the execution in which it was woken: given back, it does not wait
    -- What a job looks like in each state; any other state is none.
    CONSTRAINT holdfast_jobs_shape CHECK (CASE
        WHEN state = 'running'
        THEN due IS NULL AND finished_at IS NULL
             AND lease_token IS NOT NULL AND lease_worker IS NOT NULL AND lease_expires_at IS NOT NULL
        WHEN lease_token IS NOT NULL OR lease_worker IS NOT NULL OR lease_expires_at IS NOT NULL
        THEN FALSE
        WHEN state IN ('succeeded', 'dead', 'canceled', 'rejected')
        THEN finished_at IS NOT NULL AND due IS NULL
        WHEN state IN ('queued', 'retrying')
        THEN finished_at IS NULL AND due IS NOT NULL
        WHEN state = 'created'
        THEN finished_at IS NULL AND due IS NULL
        ELSE FALSE
    END),
    CONSTRAINT holdfast_jobs_attempts CHECK (attempt BETWEEN 0 AND max_attempts AND attempt <= epoch),
    -- A claim takes many jobs in one statement, and one that has no attempt left would fail it for all of them.
    CONSTRAINT holdfast_jobs_attempt_left CHECK (attempt < max_attempts OR (state <> 'queued' AND due IS NOT TRUE)),
    CONSTRAINT holdfast_jobs_key CHECK (key_live IS NULL OR idempotency_key IS NOT NULL)
) STRICT;

CREATE INDEX holdfast_jobs_claim ON holdfast_jobs (lane, priority DESC, id) WHERE due;
CREATE INDEX holdfast_jobs_waiting ON holdfast_jobs (run_at) WHERE NOT due;
CREATE INDEX holdfast_jobs_retrying ON holdfast_jobs (run_at) WHERE state = 'retrying' AND NOT due;
CREATE INDEX holdfast_jobs_running ON holdfast_jobs (id) WHERE state = 'running';
CREATE INDEX holdfast_jobs_created ON holdfast_jobs (created_at) WHERE state = 'created';
CREATE INDEX holdfast_jobs_unhappy ON holdfast_jobs (finished_at) WHERE finished_at IS NOT NULL AND state <> 'succeeded';
CREATE UNIQUE INDEX holdfast_jobs_key_once ON holdfast_jobs (tenant, idempotency_key) WHERE key_live;
CREATE INDEX holdfast_jobs_needs ON holdfast_jobs (type, needs) WHERE needs IS NOT NULL AND finished_at IS NULL;
CREATE INDEX holdfast_jobs_redriven ON holdfast_jobs (redrive_of) WHERE redrive_of IS NOT NULL;
CREATE INDEX holdfast_jobs_of_subject ON holdfast_jobs (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX holdfast_jobs_of_parent ON holdfast_jobs (parent_id, id) WHERE parent_id IS NOT NULL;

-- What is left of a pruned job while its idempotency key holds: a repeated create is answered with its id.
CREATE TABLE holdfast_kept_keys (
    tenant          text    NOT NULL,
    idempotency_key text    NOT NULL,
    fingerprint     text    NOT NULL,
    job_id          text    NOT NULL,
    state           text    NOT NULL,
    policy          integer NOT NULL,
    created_at      integer NOT NULL,
    expires_at      integer,          -- NULL: it holds for ever
    kept_at         integer NOT NULL, -- its job is deleted a minute later at the earliest
    PRIMARY KEY (tenant, idempotency_key)
) STRICT;

CREATE INDEX holdfast_kept_keys_of_job ON holdfast_kept_keys (job_id);
CREATE INDEX holdfast_kept_keys_over ON holdfast_kept_keys (expires_at) WHERE expires_at IS NOT NULL;

-- A finished row changes in one way only: a later create takes over its idempotency key.
CREATE TRIGGER holdfast_jobs_final BEFORE UPDATE OF
    id, tenant, type, queue, lane, lifecycle, policy, moves, state, came_from, reason, due, priority, version, pos, epoch,
    attempt, max_attempts, failures, lost, run_at, created_at, updated_at, started_at, claimed_at, progress_at,
    finished_at, cancel_requested_at, lease_seconds, late_writes, lease_worker, lease_instance, lease_token,
    lease_expires_at, last_worker, last_instance, last_token, last_claimed_at, idempotency_key, fingerprint, payload,
    result, error, step, percent, counters, eta_at, checkpoint, tags, trace, partition_key, subject, redrive_of, root_id,
    parent_id, needs, woken_epoch
    ON holdfast_jobs WHEN OLD.finished_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'HF001 the job is final; redrive makes a new job');
END;

CREATE TRIGGER holdfast_jobs_final_key BEFORE UPDATE OF key_live
    ON holdfast_jobs WHEN OLD.finished_at IS NOT NULL AND NOT (OLD.key_live IS TRUE AND NEW.key_live IS FALSE)
BEGIN
    SELECT RAISE(ABORT, 'HF001 the job is final; redrive makes a new job');
END;

CREATE TRIGGER holdfast_jobs_first_state BEFORE INSERT
    ON holdfast_jobs WHEN NEW.epoch <> 0
              OR NOT (NEW.state = 'queued' OR NEW.state = 'created' AND NEW.moves & 1 <> 0)
              OR EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.id)  -- REPLACE deletes without asking the triggers
BEGIN
    SELECT RAISE(ABORT, 'HF001 no job starts in this state');
END;

CREATE TRIGGER holdfast_jobs_fixed BEFORE UPDATE OF id, tenant, moves
    ON holdfast_jobs WHEN NEW.id <> OLD.id
              OR NEW.tenant <> OLD.tenant
              OR NEW.moves <> OLD.moves
BEGIN
    SELECT RAISE(ABORT, 'HF001 the id, tenant and moves of a job never change');
END;

CREATE TRIGGER holdfast_jobs_legal_move BEFORE UPDATE OF state, epoch, lease_token
    ON holdfast_jobs WHEN OLD.finished_at IS NULL AND CASE WHEN NEW.state = OLD.state
        THEN NEW.epoch <> OLD.epoch
             OR NEW.lease_token IS NOT OLD.lease_token
        ELSE NEW.epoch <> OLD.epoch + CASE NEW.state WHEN 'running' THEN 1 ELSE 0 END
             OR 0 = OLD.moves & CASE OLD.state
                    WHEN 'running' THEN CASE NEW.state
                        WHEN 'succeeded' THEN 16 WHEN 'retrying' THEN 32 WHEN 'dead' THEN 64 WHEN 'queued' THEN 128
                        WHEN 'rejected' THEN 256 WHEN 'canceled' THEN 512 ELSE 0 END
                    WHEN 'queued' THEN CASE NEW.state
                        WHEN 'running' THEN 2 WHEN 'rejected' THEN 2048 WHEN 'canceled' THEN 8192 ELSE 0 END
                    WHEN 'retrying' THEN CASE NEW.state
                        WHEN 'running' THEN 4 WHEN 'queued' THEN 8 WHEN 'dead' THEN 1024
                        WHEN 'canceled' THEN 16384 ELSE 0 END
                    WHEN 'created' THEN CASE NEW.state
                        WHEN 'queued' THEN 1 WHEN 'canceled' THEN 4096 ELSE 0 END
                    ELSE 0 END
        END
BEGIN
    SELECT CASE WHEN NEW.state = OLD.state
                THEN RAISE(ABORT, 'HF001 the epoch and the lease token of a job change only with its state')
                ELSE RAISE(ABORT, 'HF001 the lifecycle of the job has no such move')
           END;
END;

-- Also of a retry that is not due yet. (One that is about to be buried has no attempt left for a moment.)
CREATE TRIGGER holdfast_jobs_attempt_left BEFORE UPDATE OF attempt, max_attempts
    ON holdfast_jobs WHEN NEW.state = OLD.state AND NEW.due IS NOT NULL AND NEW.attempt >= NEW.max_attempts
BEGIN
    SELECT RAISE(ABORT, 'HF001 the job waits for an attempt: attempt must stay below max_attempts; cancel it instead');
END;

-- A job that waits for its children is looked at when one of them ends, however it ends.
CREATE TRIGGER holdfast_jobs_child_ended AFTER UPDATE OF finished_at ON holdfast_jobs
    WHEN NEW.parent_id IS NOT NULL
BEGIN
    UPDATE holdfast_jobs
       SET run_at = NEW.updated_at
     WHERE id = NEW.parent_id
       AND state = 'queued'
       AND reason = 'waiting_for_children'
       AND run_at > NEW.updated_at;
END;

CREATE TRIGGER holdfast_jobs_kept BEFORE DELETE ON holdfast_jobs WHEN OLD.finished_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'HF001 only finished jobs may be deleted');
END;

-- History -------------------------------------------------------------------------------------------------------------

-- One row about the log of events: what is added to the number of a transaction to get the position of its events
-- (PostgreSQL only: see `rebase`), and the last position of which events were pruned.
CREATE TABLE holdfast_event_log (
    only_row integer NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    base     integer NOT NULL,
    pruned   integer NOT NULL
) STRICT;
INSERT INTO holdfast_event_log (base, pruned) VALUES (0, 0);

-- History. No foreign keys: they would lock the job row again on every event, and history may outlive it.
-- `pos` is the order of writing, which with one writer at a time is the order of commits.
CREATE TABLE holdfast_events (
    job_id     text    NOT NULL,
    seq        integer NOT NULL,
    pos        integer PRIMARY KEY AUTOINCREMENT,
    tenant     text    NOT NULL,
    at         integer NOT NULL,
    verb       text    NOT NULL,
    from_state text,
    to_state   text,
    attempt    integer NOT NULL,
    epoch      integer NOT NULL,
    actor      text    NOT NULL,
    worker_id  text,
    reason     text,
    step       text,
    percent    real,
    data       text,
    UNIQUE (job_id, seq),
    -- Who may do what, once more: only workers start and finish, only workers and the system fail, and so on.
    CONSTRAINT holdfast_events_actor CHECK (
        CASE to_state
            WHEN 'running'   THEN actor = 'worker'
            WHEN 'succeeded' THEN actor = 'worker'
            WHEN 'retrying'  THEN actor IN ('worker', 'system')
            WHEN 'dead'      THEN actor IN ('worker', 'system')
            WHEN 'rejected'  THEN actor = CASE from_state WHEN 'queued' THEN 'system' ELSE 'worker' END
            WHEN 'queued'    THEN CASE from_state
                                      WHEN 'created'  THEN actor IN ('client', 'api', 'system')
                                      WHEN 'running'  THEN actor IN ('worker', 'system')
                                      WHEN 'retrying' THEN actor IN ('api', 'system')
                                      ELSE actor IN ('client', 'api', 'worker', 'system')
                                  END
            WHEN 'canceled'  THEN CASE from_state
                                      WHEN 'running' THEN actor IN ('worker', 'system')
                                      ELSE actor IN ('client', 'api', 'system')
                                  END
            ELSE actor IN ('client', 'api', 'worker', 'system')
        END)
) STRICT;

CREATE INDEX holdfast_events_failures ON holdfast_events (pos) WHERE verb = 'fail' OR verb = 'reap';

CREATE TABLE holdfast_attempts (
    job_id     text    NOT NULL,
    epoch      integer NOT NULL,
    tenant     text    NOT NULL,
    attempt    integer NOT NULL,
    worker_id  text    NOT NULL,
    instance   text,
    token      text    NOT NULL,
    started_at integer NOT NULL,
    ended_at   integer NOT NULL,
    outcome    text    NOT NULL,
    to_state   text    NOT NULL,
    reason     text,
    error      text,
    PRIMARY KEY (job_id, epoch)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER holdfast_events_append_only BEFORE UPDATE ON holdfast_events
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_events is append-only');
END;

-- The one change of an attempt: when its job is pruned, its error goes, which may hold what its payload held.
CREATE TRIGGER holdfast_attempts_append_only BEFORE UPDATE ON holdfast_attempts
    WHEN NEW.error IS NOT NULL
         OR (NEW.job_id, NEW.epoch, NEW.tenant, NEW.attempt, NEW.worker_id, NEW.instance,
             NEW.token, NEW.started_at, NEW.ended_at, NEW.outcome, NEW.to_state, NEW.reason)
            IS NOT (OLD.job_id, OLD.epoch, OLD.tenant, OLD.attempt, OLD.worker_id, OLD.instance,
                    OLD.token, OLD.started_at, OLD.ended_at, OLD.outcome, OLD.to_state, OLD.reason)
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_attempts is append-only');
END;

-- How far each reader of the events has come.
CREATE TABLE holdfast_readers (
    name    text    NOT NULL PRIMARY KEY,
    pos     integer NOT NULL,
    job_id  text    NOT NULL,
    seq     integer NOT NULL,
    read_at integer NOT NULL
) STRICT;

-- Parts of jobs -------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_parts (
    job_id       text    NOT NULL,
    name         text    NOT NULL,
    tenant       text    NOT NULL,
    epoch        integer NOT NULL,
    place        integer NOT NULL,
    status       text    NOT NULL CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'skipped')),
    percent      real    CHECK (percent BETWEEN 0 AND 100),
    total        integer,
    done         integer,
    error        text,
    data         text,
    started_at   integer,
    completed_at integer,
    PRIMARY KEY (job_id, name)
) STRICT;

-- Extensions ----------------------------------------------------------------------------------------------------------

-- Which extensions this database knows, and when a process that has them last did maintenance.
CREATE TABLE holdfast_extensions (
    name    text    NOT NULL PRIMARY KEY,
    seen_at integer NOT NULL
) STRICT;

-- Maintenance of extensions: when each task is due, when it last succeeded, how often it has failed since.
CREATE TABLE holdfast_maintenance (
    extension text    NOT NULL,
    task      text    NOT NULL,
    due_at    integer NOT NULL,
    ran_at    integer,
    failures  integer NOT NULL DEFAULT 0,
    error     text,
    PRIMARY KEY (extension, task)
) STRICT;

-- Moves that a hook has failed: they are tried again at `next_at`. Where `failures` is 0, a guard has put the move off.
CREATE TABLE holdfast_hook_failures (
    job_id    text    NOT NULL,
    verb      text    NOT NULL,
    extension text    NOT NULL,
    failures  integer NOT NULL,
    error     text    NOT NULL,
    next_at   integer NOT NULL,
    PRIMARY KEY (job_id, verb)
) STRICT;

-- Sweeps and figures that all processes share -------------------------------------------------------------------------

-- When the last sweep succeeded anywhere: a gap means that silence proves nothing yet.
CREATE TABLE holdfast_sweeps (
    name        text    NOT NULL PRIMARY KEY,
    swept_at    integer NOT NULL,
    grace_until integer
) STRICT;

-- What is counted seldom and read often: one process counts, all of them show it.
CREATE TABLE holdfast_counted (
    name     text    NOT NULL PRIMARY KEY,
    taken_at integer NOT NULL,           -- when the figures were true
    asked_at integer NOT NULL,           -- when a process last began to count: others wait for it for a while
    figures  text    NOT NULL
) STRICT;

-- Keys, sessions, secrets and the audit log ---------------------------------------------------------------------------

-- Only a digest of the secret part is kept; the id is public and finds the row.
CREATE TABLE holdfast_keys (
    id              text    NOT NULL PRIMARY KEY,
    kind            text    NOT NULL CHECK (kind IN ('client', 'worker', 'admin')),
    tenant          text    NOT NULL,
    name            text,
    subject         text,                      -- the user it stands for
    digest          text    NOT NULL,
    scopes          text    NOT NULL,
    worker_id       text,                      -- a worker's key belongs to one worker
    rate_per_second real,
    expires_in      real,                      -- seconds, as it was made: its replacement gets as many
    created_at      integer NOT NULL,
    expires_at      integer,
    revoked_at      integer,
    used_at         integer,
    CONSTRAINT holdfast_keys_worker CHECK ((kind = 'worker') = (worker_id IS NOT NULL))
) STRICT;

CREATE INDEX holdfast_keys_of_worker ON holdfast_keys (worker_id) WHERE worker_id IS NOT NULL;

-- A browser that has signed in with a key. Only a digest of what its cookie holds is kept.
CREATE TABLE holdfast_sessions (
    digest     text    NOT NULL PRIMARY KEY,
    key_id     text    NOT NULL,
    created_at integer NOT NULL,
    expires_at integer NOT NULL,
    used_at    integer
) STRICT;

CREATE INDEX holdfast_sessions_over ON holdfast_sessions (expires_at);

-- What all servers before one database share to sign with, made by the first that needs it.
CREATE TABLE holdfast_secrets (
    name  text NOT NULL PRIMARY KEY,
    value text NOT NULL
) STRICT;

-- Each line holds a digest of itself and of the line before, so that a change or a gap shows.
CREATE TABLE holdfast_audit (
    seq      integer NOT NULL PRIMARY KEY,
    at       integer NOT NULL,
    actor    text    NOT NULL,
    action   text    NOT NULL,
    subject  text,
    detail   text    NOT NULL,
    previous text    NOT NULL,
    digest   text    NOT NULL
) STRICT;

CREATE TRIGGER holdfast_audit_append_only BEFORE UPDATE ON holdfast_audit
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_audit is append-only');
END;

CREATE TRIGGER holdfast_audit_kept BEFORE DELETE ON holdfast_audit
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_audit is append-only');
END;

-- Webhooks and alerts -------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_webhooks (
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

CREATE TABLE holdfast_deliveries (
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

CREATE INDEX holdfast_deliveries_due ON holdfast_deliveries (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX holdfast_deliveries_of ON holdfast_deliveries (webhook_id, id);
CREATE INDEX holdfast_deliveries_old ON holdfast_deliveries (next_at);

-- When an alert of each kind was last sent, and how many have been held back since.
CREATE TABLE holdfast_alerts (
    kind    text    NOT NULL PRIMARY KEY,
    sent_at integer,
    held    integer NOT NULL DEFAULT 0,
    memory  text                          -- the latest failures of each job type, for the kind that counts them
) STRICT;
