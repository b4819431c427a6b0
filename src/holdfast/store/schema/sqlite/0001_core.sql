-- The schema of Holdfast. Constraints and triggers reject moves that a job's lifecycle does not allow, also by hand.
-- Times are microseconds since 1970, booleans 0 and 1.

-- The database itself -------------------------------------------------------------------------------------------------

-- One row, written once: the identity of this database, which every new connection reads.
CREATE TABLE holdfast_database_identity (
    id text PRIMARY KEY NOT NULL
) STRICT;
INSERT INTO holdfast_database_identity (id) VALUES (lower(hex(randomblob(16))));

-- Job types, lifecycles, policies, lanes, queues -----------------------------------------------------------------------

-- `schema`: the JSON schema of the payload. `conflict`: another app's different declaration of this name. `needs`: the
-- extensions with hooks on this type, as a JSON array, or NULL. `needs_by`: the same for each app that declares the type.
CREATE TABLE holdfast_job_types (
    name        text    NOT NULL PRIMARY KEY,
    lifecycle   text    NOT NULL,
    queue       text    NOT NULL,
    policy      text    NOT NULL,
    requires    text    NOT NULL,
    prefers     text    NOT NULL,
    limits      text    NOT NULL DEFAULT '{}',
    schema      text,
    declared_by text,
    conflict    text,
    needs       text,
    needs_by    text,
    updated_at  integer NOT NULL
) STRICT;

-- Lifecycles declared by apps, stored so that processes without the app can use them.
CREATE TABLE holdfast_lifecycles (
    name       text    NOT NULL PRIMARY KEY,
    body       text    NOT NULL,
    updated_at integer NOT NULL
) STRICT;

-- Policies and lanes are interned: rows are written once and never changed, and jobs refer to them. The limits that the
-- reaper checks are columns, the rest of a policy is in its body. `moves` are the legal moves of the lifecycle as bits: a
-- process that cannot read the body, because a newer version wrote it, uses these.
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

-- Tenants that have jobs. `weight`: its share of claims beside other tenants.
CREATE TABLE holdfast_tenants (
    id     integer NOT NULL PRIMARY KEY AUTOINCREMENT,
    name   text    NOT NULL UNIQUE,
    weight integer NOT NULL DEFAULT 1
) STRICT;

INSERT INTO holdfast_tenants (name) VALUES ('default');

-- A lane is the set of jobs that the same workers may claim. A claim selects lanes first, then the head of each, so it
-- never reads jobs that the worker may not claim. Its id is the id of its tenant times 2^32 plus a number, so that the
-- lanes of a tenant are neighbours in an index. The digest covers all other columns. `limits`: the named limits of its
-- jobs, with the units that each job takes.
CREATE TABLE holdfast_lanes (
    id            integer NOT NULL PRIMARY KEY,
    digest        text    NOT NULL UNIQUE,
    tenant        text    NOT NULL,
    queue         text    NOT NULL,
    type          text    NOT NULL,
    requires      text    NOT NULL,
    prefers       text    NOT NULL,
    limits        text    NOT NULL DEFAULT '{}',
    defer_seconds real    NOT NULL
) STRICT;

CREATE INDEX holdfast_lanes_of_type ON holdfast_lanes (type, queue);
CREATE INDEX holdfast_lanes_of_queue ON holdfast_lanes (queue);

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
    told              text,             -- its status in the last event about it: see `record_worker_events`
    told_at           integer
) STRICT;

-- The names of deleted workers, for the records of attempts.
CREATE TABLE holdfast_past_workers (
    id   text NOT NULL PRIMARY KEY,
    name text NOT NULL
) STRICT;

-- The answers to claims with a request id: a repeated request gets the same leases.
CREATE TABLE holdfast_claims (
    worker_id  text    NOT NULL,
    request_id text    NOT NULL,
    claimed_at integer NOT NULL,
    leases     text    NOT NULL,
    repeated   integer NOT NULL DEFAULT FALSE, -- possibly answered twice: these leases are not revoked
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
    key_lane            integer,                  -- of a job with a key: see holdfast_key_lanes
    lifecycle           text    NOT NULL,
    policy              integer NOT NULL,
    moves               integer NOT NULL,         -- a bit per legal pair of states, fixed at insert
    state               text    NOT NULL,
    came_from           text,                     -- the state before this one
    moved_by            text    NOT NULL,         -- the actor of the last event
    limited             integer,                  -- of a running job: it holds units of limits
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
    lease_worker        text,                     -- of a job that is not running: of its last lease
    lease_instance      text,
    lease_token         text,
    lease_expires_at    integer,                  -- only of a running job
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
    limit_key           text,
    fairness_key        text,
    subject             text,
    redrive_of          text,
    root_id             text,
    parent_id           text,
    needs               text,                     -- extensions whose hooks every move runs, as JSON
    woken_epoch         integer,                  -- the execution in which it was woken: if released, it is due at once
    -- The list in which it is: created, waiting, retrying, dead, canceled, rejected or none, and its time there. Here and
    -- in the checks and triggers of this table, no IN has more than two values: SQLite would build an index of them for
    -- every statement, which costs more than the row.
    parked              text    GENERATED ALWAYS AS (CASE
        WHEN due IS FALSE THEN CASE state WHEN 'queued' THEN 'waiting' ELSE state END
        WHEN state = 'created' OR state = 'dead' OR state = 'canceled' OR state = 'rejected' THEN state
    END) VIRTUAL,
    parked_at           integer GENERATED ALWAYS AS (CASE
        WHEN due IS FALSE THEN run_at
        WHEN state = 'created' THEN created_at
        WHEN state = 'dead' OR state = 'canceled' OR state = 'rejected' THEN finished_at
    END) VIRTUAL,
    -- Which columns are set in each state; other states are invalid.
    CONSTRAINT holdfast_jobs_shape CHECK (CASE
        WHEN state = 'running'
        THEN due IS NULL AND finished_at IS NULL
             AND lease_token IS NOT NULL AND lease_worker IS NOT NULL AND lease_expires_at IS NOT NULL
        WHEN lease_expires_at IS NOT NULL
        THEN FALSE
        WHEN state = 'succeeded' OR state = 'dead' OR state = 'canceled' OR state = 'rejected'
        THEN finished_at IS NOT NULL AND due IS NULL
        WHEN state IN ('queued', 'retrying')
        THEN finished_at IS NULL AND due IS NOT NULL
        WHEN state = 'created'
        THEN finished_at IS NULL AND due IS NULL
        ELSE FALSE
    END),
    CONSTRAINT holdfast_jobs_attempts CHECK (attempt BETWEEN 0 AND max_attempts AND attempt <= epoch),
    -- A claim updates many jobs in one statement; a job without an attempt left would make it fail for all of them.
    CONSTRAINT holdfast_jobs_attempt_left CHECK (attempt < max_attempts OR (state <> 'queued' AND due IS NOT TRUE)),
    CONSTRAINT holdfast_jobs_key CHECK (key_live IS NULL OR idempotency_key IS NOT NULL),
    CONSTRAINT holdfast_jobs_moved_by CHECK (
        moved_by = 'client' OR moved_by = 'api' OR moved_by = 'worker' OR moved_by = 'system'
    )
) STRICT;

CREATE INDEX holdfast_jobs_claim ON holdfast_jobs (coalesce(key_lane, lane), priority DESC, id) WHERE due;
CREATE INDEX holdfast_jobs_running ON holdfast_jobs (id) WHERE state = 'running';
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (parked, parked_at) WHERE parked IS NOT NULL;
CREATE UNIQUE INDEX holdfast_jobs_key_once ON holdfast_jobs (tenant, idempotency_key) WHERE key_live;
CREATE INDEX holdfast_jobs_redriven ON holdfast_jobs (redrive_of) WHERE redrive_of IS NOT NULL;
CREATE INDEX holdfast_jobs_of_subject ON holdfast_jobs (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX holdfast_jobs_of_parent ON holdfast_jobs (parent_id, id) WHERE parent_id IS NOT NULL;

-- The claimable jobs, and the running ones: tables of their own on PostgreSQL.
CREATE VIEW holdfast_ready AS
    SELECT coalesce(key_lane, lane) AS lane, priority, needs IS NOT NULL AS hooked, id, run_at FROM holdfast_jobs WHERE due;

-- Limits --------------------------------------------------------------------------------------------------------------

-- What bounds the claims of jobs: `type:NAME`, `queue:NAME`, `tenant:NAME`, `key:TYPE` (for each key of the type),
-- `key:TYPE KEY` (for this one), or a name of its own. `rate`: units a second, `burst`: those that may be saved up.
-- `declared`: what the app declares, as JSON. `set_by`: the operator who set other values.
CREATE TABLE holdfast_limits (
    name        text    NOT NULL PRIMARY KEY,
    concurrency integer CHECK (concurrency >= 0),
    rate        real    CHECK (rate >= 0),
    burst       real    CHECK (burst >= 1),
    declared    text,
    set_by      text,
    updated_at  integer NOT NULL,
    CHECK ((rate IS NULL) = (burst IS NULL))
) STRICT;

-- The units that running jobs hold. A bucket is a limit, or one key of a limit: `key:TYPE KEY`. The claim inserts them; a
-- trigger deletes them when the job is no longer running.
CREATE TABLE holdfast_limit_units (
    bucket text    NOT NULL,
    job_id text    NOT NULL,
    units  integer NOT NULL,
    PRIMARY KEY (bucket, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_limit_units_of_job ON holdfast_limit_units (job_id);

-- The tokens of buckets with a rate, as of `filled_at`. A bucket without a row is full.
CREATE TABLE holdfast_limit_tokens (
    bucket    text    NOT NULL PRIMARY KEY,
    tokens    real    NOT NULL,
    filled_at integer NOT NULL,
    full_at   integer NOT NULL
) STRICT;

-- The keyed lanes that may have claimable jobs: each limit key and each fairness key of a lane has its own, with a number
-- below 0, so that a claim does not walk over them. A claim takes those whose `turn_at` has come, first the one that has
-- waited longest `since` it had a job (NULL: since `turn_at`). Without `turn_at`, all units of the bucket are held. A claim
-- replaces the rows that it sees by one.
CREATE TABLE holdfast_key_lanes (
    lane     integer NOT NULL,
    key_lane integer NOT NULL,
    bucket   text,
    turn_at  integer,
    since    integer
) STRICT;

CREATE INDEX holdfast_key_lanes_turn ON holdfast_key_lanes (lane, turn_at, since) WHERE turn_at IS NOT NULL;
CREATE INDEX holdfast_key_lanes_of ON holdfast_key_lanes (key_lane);
CREATE INDEX holdfast_key_lanes_full ON holdfast_key_lanes (bucket) WHERE turn_at IS NULL;

-- A job makes its keyed lane claimable.
CREATE TRIGGER holdfast_jobs_key_created AFTER INSERT
    ON holdfast_jobs WHEN NEW.key_lane IS NOT NULL AND NEW.due
BEGIN
    INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at)
    SELECT NEW.lane, NEW.key_lane, 'key:' || NEW.type || ' ' || NEW.limit_key, NEW.updated_at
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE key_lane = NEW.key_lane);
END;

CREATE TRIGGER holdfast_jobs_key_due AFTER UPDATE OF due
    ON holdfast_jobs WHEN NEW.key_lane IS NOT NULL AND NEW.due AND OLD.due IS NOT TRUE
BEGIN
    INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at)
    SELECT NEW.lane, NEW.key_lane, 'key:' || NEW.type || ' ' || NEW.limit_key, NEW.updated_at
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE key_lane = NEW.key_lane);
END;

-- A job is no longer running: lanes whose bucket was full have another turn.
CREATE TRIGGER holdfast_jobs_free_units AFTER UPDATE OF state
    ON holdfast_jobs WHEN OLD.limited AND OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    DELETE FROM holdfast_limit_units WHERE job_id = NEW.id;
    INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
    SELECT lane, key_lane, bucket, NEW.updated_at, min(since)
      FROM holdfast_key_lanes AS waiting
     WHERE bucket = 'key:' || NEW.type || ' ' || NEW.limit_key
       AND turn_at IS NULL
       AND NOT EXISTS (SELECT 1
                         FROM holdfast_key_lanes AS open
                        WHERE open.key_lane = waiting.key_lane
                          AND open.turn_at IS NOT NULL)
     GROUP BY lane, key_lane, bucket;
END;

CREATE VIEW holdfast_running AS SELECT * FROM holdfast_jobs WHERE state = 'running';

-- All unfinished jobs.
CREATE VIEW holdfast_open_jobs AS
    SELECT id, type, needs FROM holdfast_jobs WHERE due
     UNION ALL
    SELECT id, type, needs FROM holdfast_jobs WHERE parked IN ('created', 'waiting', 'retrying')
     UNION ALL
    SELECT id, type, needs FROM holdfast_running;

-- The idempotency keys of pruned jobs, while they are valid: a repeated create returns the id of the pruned job.
CREATE TABLE holdfast_kept_keys (
    tenant          text    NOT NULL,
    idempotency_key text    NOT NULL,
    fingerprint     text    NOT NULL,
    job_id          text    NOT NULL,
    state           text    NOT NULL,
    policy          integer NOT NULL,
    created_at      integer NOT NULL,
    expires_at      integer,          -- NULL: never
    kept_at         integer NOT NULL, -- the job is deleted at least a minute later
    PRIMARY KEY (tenant, idempotency_key)
) STRICT;

CREATE INDEX holdfast_kept_keys_of_job ON holdfast_kept_keys (job_id);
CREATE INDEX holdfast_kept_keys_over ON holdfast_kept_keys (expires_at) WHERE expires_at IS NOT NULL;

-- The only allowed change of a finished row: a later create takes over its idempotency key.
CREATE TRIGGER holdfast_jobs_final BEFORE UPDATE OF
    id, tenant, type, queue, lane, key_lane, lifecycle, policy, moves, state, came_from, moved_by, limited, reason, due, priority, version, pos, epoch,
    attempt, max_attempts, failures, lost, run_at, created_at, updated_at, started_at, claimed_at, progress_at,
    finished_at, cancel_requested_at, lease_seconds, late_writes, lease_worker, lease_instance, lease_token,
    lease_expires_at, idempotency_key, fingerprint, payload,
    result, error, step, percent, counters, eta_at, checkpoint, tags, trace, partition_key, limit_key, fairness_key, subject, redrive_of, root_id,
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
              OR EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = NEW.id)  -- REPLACE deletes without firing triggers
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

-- Which actor may make which move: only workers start and finish jobs, only workers and the system fail them.
CREATE TRIGGER holdfast_jobs_actor BEFORE UPDATE OF state
    ON holdfast_jobs WHEN NEW.state <> OLD.state AND NOT CASE NEW.state
        WHEN 'running'   THEN NEW.moved_by = 'worker'
        WHEN 'succeeded' THEN NEW.moved_by = 'worker'
        WHEN 'retrying'  THEN NEW.moved_by IN ('worker', 'system')
        WHEN 'dead'      THEN NEW.moved_by IN ('worker', 'system')
        WHEN 'rejected'  THEN NEW.moved_by = CASE OLD.state WHEN 'queued' THEN 'system' ELSE 'worker' END
        WHEN 'queued'    THEN CASE OLD.state
                                  WHEN 'created' THEN NEW.moved_by <> 'worker'
                                  WHEN 'running' THEN NEW.moved_by IN ('worker', 'system')
                                  ELSE NEW.moved_by IN ('api', 'system')
                              END
        WHEN 'canceled'  THEN CASE OLD.state
                                  WHEN 'running' THEN NEW.moved_by IN ('worker', 'system')
                                  ELSE NEW.moved_by <> 'worker'
                              END
        ELSE TRUE
    END
BEGIN
    SELECT RAISE(ABORT, 'HF003 this actor may not make this move');
END;

-- Also for a retry that is not due yet. (A retry that is about to move to `dead` has no attempt left for a moment.)
CREATE TRIGGER holdfast_jobs_attempt_left BEFORE UPDATE OF attempt, max_attempts
    ON holdfast_jobs WHEN NEW.state = OLD.state AND NEW.due IS NOT NULL AND NEW.attempt >= NEW.max_attempts
BEGIN
    SELECT RAISE(ABORT, 'HF001 the job waits for an attempt: attempt must stay below max_attempts; cancel it instead');
END;

-- When a child finishes, its parent is checked, if it waits for children.
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

-- One row about the event log: `base` plus the transaction id is the position of an event (PostgreSQL only: see `rebase`);
-- `pruned` is the last position of which events were pruned.
CREATE TABLE holdfast_event_log (
    only_row integer NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    base     integer NOT NULL,
    pruned   integer NOT NULL
) STRICT;
INSERT INTO holdfast_event_log (base, pruned) VALUES (0, 0);

-- Events. No foreign keys: they would lock the job row on every insert, and events may outlive the job.
-- `pos` is the order of inserts, which with a single writer is the commit order.
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
    instance   text,               -- of a claim: the process, and the token of the lease
    token      text,
    UNIQUE (job_id, seq)
) STRICT;

CREATE INDEX holdfast_events_failures ON holdfast_events (pos) WHERE verb = 'fail' OR verb = 'reap';

-- The attempts of pruned jobs, without their errors, which may contain payload data.
CREATE TABLE holdfast_kept_attempts (
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
    PRIMARY KEY (job_id, epoch)
) STRICT, WITHOUT ROWID;

CREATE INDEX holdfast_kept_attempts_ended ON holdfast_kept_attempts (ended_at);

-- The attempts that have ended: a claim, and the move that ended it.
CREATE VIEW holdfast_attempts AS
    SELECT claim.job_id, claim.epoch, claim.tenant, claim.attempt, claim.worker_id, claim.instance, claim.token,
           claim.at AS started_at, ended.at AS ended_at,
           CASE ended.verb WHEN 'complete' THEN 'succeeded' WHEN 'fail' THEN 'failed' WHEN 'release' THEN 'released'
                           WHEN 'reject' THEN 'rejected' WHEN 'cancel' THEN 'canceled' ELSE 'lost' END AS outcome,
           ended.to_state, ended.reason, ended.data AS error
      FROM holdfast_events AS claim
      JOIN holdfast_events AS ended ON ended.job_id = claim.job_id
                                   AND ended.epoch = claim.epoch
                                   AND ended.from_state = 'running'
     WHERE claim.verb = 'claim'
     UNION ALL
    SELECT job_id, epoch, tenant, attempt, worker_id, instance, token, started_at, ended_at, outcome, to_state, reason, NULL
      FROM holdfast_kept_attempts;

CREATE TRIGGER holdfast_events_append_only BEFORE UPDATE ON holdfast_events
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_events is append-only');
END;

CREATE TRIGGER holdfast_kept_attempts_append_only BEFORE UPDATE ON holdfast_kept_attempts
BEGIN
    SELECT RAISE(ABORT, 'HF002 holdfast_kept_attempts is append-only');
END;

-- The position of each reader of the event log.
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

-- The known extensions, and when a process that has them last did maintenance.
CREATE TABLE holdfast_extensions (
    name    text    NOT NULL PRIMARY KEY,
    seen_at integer NOT NULL
) STRICT;

-- Maintenance tasks of extensions: when each is due, when it last succeeded, and its failures since then.
CREATE TABLE holdfast_maintenance (
    extension text    NOT NULL,
    task      text    NOT NULL,
    due_at    integer NOT NULL,
    ran_at    integer,
    failures  integer NOT NULL DEFAULT 0,
    error     text,
    PRIMARY KEY (extension, task)
) STRICT;

-- Moves that a hook has failed, to be retried at `next_at`. With `failures` 0, a guard has deferred the move.
CREATE TABLE holdfast_hook_failures (
    job_id    text    NOT NULL,
    verb      text    NOT NULL,
    extension text    NOT NULL,
    failures  integer NOT NULL,
    error     text    NOT NULL,
    next_at   integer NOT NULL,
    PRIMARY KEY (job_id, verb)
) STRICT;

-- Sweeps and statistics that all processes share -----------------------------------------------------------------------

-- When the last sweep succeeded, in any process. After a gap, expired leases are not reaped until `grace_until`.
CREATE TABLE holdfast_sweeps (
    name        text    NOT NULL PRIMARY KEY,
    swept_at    integer NOT NULL,
    grace_until integer
) STRICT;

-- Statistics that one process counts and all processes read.
CREATE TABLE holdfast_counted (
    name     text    NOT NULL PRIMARY KEY,
    taken_at integer NOT NULL,           -- when the figures were counted
    asked_at integer NOT NULL,           -- when a process last began to count; others wait for it up to a timeout
    figures  text    NOT NULL
) STRICT;

-- Keys, sessions, secrets and the audit log ---------------------------------------------------------------------------

-- Only a digest of the secret part is stored; the id is public.
CREATE TABLE holdfast_keys (
    id              text    NOT NULL PRIMARY KEY,
    kind            text    NOT NULL CHECK (kind IN ('client', 'worker', 'admin')),
    tenant          text    NOT NULL,
    name            text,
    subject         text,                      -- the user that it authenticates
    digest          text    NOT NULL,
    scopes          text    NOT NULL,
    worker_id       text,                      -- a worker key belongs to one worker
    rate_per_second real,
    expires_in      real,                      -- seconds, as created; a replacement key gets the same
    created_at      integer NOT NULL,
    expires_at      integer,
    revoked_at      integer,
    used_at         integer,
    CONSTRAINT holdfast_keys_worker CHECK ((kind = 'worker') = (worker_id IS NOT NULL))
) STRICT;

CREATE INDEX holdfast_keys_of_worker ON holdfast_keys (worker_id) WHERE worker_id IS NOT NULL;

-- Browser sessions, signed in with a key. Only a digest of the cookie is stored.
CREATE TABLE holdfast_sessions (
    digest     text    NOT NULL PRIMARY KEY,
    key_id     text    NOT NULL,
    created_at integer NOT NULL,
    expires_at integer NOT NULL,
    used_at    integer
) STRICT;

CREATE INDEX holdfast_sessions_over ON holdfast_sessions (expires_at);

-- Signing secrets that all servers of this database share, created by the first that needs one.
CREATE TABLE holdfast_secrets (
    name  text NOT NULL PRIMARY KEY,
    value text NOT NULL
) STRICT;

-- Each entry contains a digest of itself and of the previous entry, which reveals changes and gaps.
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
    secrets         text    NOT NULL,      -- the newest first; all of them sign during a rotation
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
    log         text    NOT NULL,         -- the last attempts: time, duration, response
    created_at  integer NOT NULL,
    next_at     integer NOT NULL,
    finished_at integer,
    UNIQUE (webhook_id, job_id, seq)
) STRICT;

CREATE INDEX holdfast_deliveries_due ON holdfast_deliveries (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX holdfast_deliveries_of ON holdfast_deliveries (webhook_id, id);
CREATE INDEX holdfast_deliveries_old ON holdfast_deliveries (next_at);

-- When an alert of each kind was last sent, and how many were suppressed since.
CREATE TABLE holdfast_alerts (
    kind    text    NOT NULL PRIMARY KEY,
    sent_at integer,
    held    integer NOT NULL DEFAULT 0,
    memory  text                          -- the latest failures of each job type, for the alert on failures
) STRICT;
