-- The schema of Holdfast. Constraints and triggers reject moves that a job's lifecycle does not allow, also by hand.

-- The database itself -------------------------------------------------------------------------------------------------

-- One row, written once: the identity of this database, which every new connection reads.
CREATE TABLE holdfast_database_identity (
    id text PRIMARY KEY
);
INSERT INTO holdfast_database_identity (id) VALUES (gen_random_uuid()::text);

-- Job types, lifecycles, policies, lanes, queues -----------------------------------------------------------------------

-- `schema`: the JSON schema of the payload. `conflict`: another app's different declaration of this name. `needs`: the
-- extensions with hooks on this type, as a JSON array, or NULL. `needs_by`: the same for each app that declares the type.
CREATE TABLE holdfast_job_types (
    name        text        PRIMARY KEY,
    lifecycle   text        NOT NULL,
    queue       text        NOT NULL,
    policy      text        NOT NULL,
    requires    text        NOT NULL,
    prefers     text        NOT NULL,
    schema      text,
    declared_by text,
    conflict    text,
    needs       text,
    needs_by    text,
    updated_at  timestamptz NOT NULL
);

-- Lifecycles declared by apps, stored so that processes without the app can use them.
CREATE TABLE holdfast_lifecycles (
    name       text        PRIMARY KEY,
    body       text        NOT NULL,
    updated_at timestamptz NOT NULL
);

-- Policies and lanes are interned: rows are written once and never changed, and jobs refer to them. The limits that the
-- reaper checks are columns, the rest of a policy is in its body. `moves` are the legal moves of the lifecycle as bits: a
-- process that cannot read the body, because a newer version wrote it, uses these.
CREATE TABLE holdfast_policies (
    id                   integer          GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest               text             NOT NULL UNIQUE,
    body                 text             NOT NULL,
    moves                integer          NOT NULL,
    waits_for_offline    boolean          NOT NULL,
    offline_seconds      double precision NOT NULL,
    no_progress_seconds  double precision,
    max_runtime_seconds  double precision,
    cancel_grace_seconds double precision NOT NULL
);

-- A lane is the set of jobs that the same workers may claim. A claim selects lanes first, then the head of each, so it
-- never reads jobs that the worker may not claim. The digest covers all other columns: together they may exceed the size
-- limit of a PostgreSQL index entry.
CREATE TABLE holdfast_lanes (
    id            integer          GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest        text             NOT NULL UNIQUE,
    tenant        text             NOT NULL,
    queue         text             NOT NULL,
    type          text             NOT NULL,
    requires      text             NOT NULL,
    prefers       text             NOT NULL,
    defer_seconds double precision NOT NULL
);

CREATE INDEX holdfast_lanes_of_queue ON holdfast_lanes (tenant, queue, type);

CREATE TABLE holdfast_queues (
    tenant    text        NOT NULL,
    name      text        NOT NULL,
    paused_at timestamptz,
    paused_by text,
    PRIMARY KEY (tenant, name)
);

-- Workers -------------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_workers (
    id                uuid             PRIMARY KEY,
    name              text,
    kind              text             NOT NULL,
    tenants           text,
    capabilities      text             NOT NULL,
    offers            text             NOT NULL,
    metadata          text             NOT NULL,
    claim_scopes      text,             -- what claims over HTTP ask for: job types and queues
    enabled           boolean          NOT NULL DEFAULT TRUE,
    liveness          text             NOT NULL CHECK (liveness IN ('active', 'idle', 'busy', 'offline')),
    slots             integer,
    registered_at     timestamptz      NOT NULL,
    last_heartbeat_at timestamptz,
    heartbeat_seconds double precision NOT NULL,
    offline_seconds   double precision NOT NULL,
    told              text,             -- its status in the last event about it: see `record_worker_events`
    told_at           timestamptz
);

-- The names of deleted workers, for the records of attempts.
CREATE TABLE holdfast_past_workers (
    id   uuid PRIMARY KEY,
    name text NOT NULL
);

-- The answers to claims with a request id: a repeated request gets the same leases.
CREATE TABLE holdfast_claims (
    worker_id  uuid        NOT NULL,
    request_id text        NOT NULL,
    claimed_at timestamptz NOT NULL,
    leases     text        NOT NULL,
    repeated   boolean     NOT NULL DEFAULT FALSE, -- possibly answered twice: these leases are not revoked
    PRIMARY KEY (worker_id, request_id)
);

CREATE INDEX holdfast_claims_old ON holdfast_claims (claimed_at);

-- Jobs ----------------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_jobs (
    id                  uuid             PRIMARY KEY,
    tenant              text             NOT NULL,
    type                text             NOT NULL,
    queue               text             NOT NULL,
    lane                integer          NOT NULL,
    lifecycle           text             NOT NULL,
    policy              integer          NOT NULL,
    moves               integer          NOT NULL,  -- a bit per legal pair of states, fixed at insert
    state               text             NOT NULL,
    came_from           text,                       -- the state before this one
    reason              text,                       -- why it is in this state
    due                 boolean,                    -- TRUE: claimable now; FALSE: waits for run_at; NULL: neither
    priority            smallint         NOT NULL CHECK (priority BETWEEN -100 AND 100),
    version             integer          NOT NULL,  -- the number of its events
    pos                 bigint           NOT NULL DEFAULT 0,  -- of its last event; PostgreSQL only
    epoch               integer          NOT NULL DEFAULT 0,
    attempt             integer          NOT NULL DEFAULT 0,
    max_attempts        integer          NOT NULL,
    failures            integer          NOT NULL DEFAULT 0,
    lost                integer          NOT NULL DEFAULT 0,
    run_at              timestamptz      NOT NULL,
    created_at          timestamptz      NOT NULL,
    updated_at          timestamptz      NOT NULL,
    started_at          timestamptz,
    claimed_at          timestamptz,
    progress_at         timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    lease_seconds       double precision NOT NULL,
    late_writes         boolean          NOT NULL,
    lease_worker        uuid,
    lease_instance      text,
    lease_token         uuid,
    lease_expires_at    timestamptz,
    last_worker         uuid,                       -- the previous lease, for the record of the attempt
    last_instance       text,
    last_token          uuid,
    last_claimed_at     timestamptz,
    idempotency_key     text,
    key_live            boolean,
    fingerprint         text,
    payload             text             NOT NULL,
    result              text,
    error               text,
    step                text,
    percent             double precision CHECK (percent BETWEEN 0 AND 100),
    counters            text,
    eta_at              timestamptz,
    checkpoint          text,
    tags                text,
    trace               text,
    partition_key       text,
    subject             text,
    redrive_of          uuid,
    root_id             uuid,
    parent_id           uuid,
    needs               text,                       -- extensions whose hooks every move runs, as JSON
    woken_epoch         integer,                    -- the execution in which it was woken: if released, it is due at once
    -- Which columns are set in each state; other states are invalid.
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
    -- A claim updates many jobs in one statement; a job without an attempt left would make it fail for all of them.
    CONSTRAINT holdfast_jobs_attempt_left CHECK (attempt < max_attempts OR (state <> 'queued' AND due IS NOT TRUE)),
    CONSTRAINT holdfast_jobs_key CHECK (key_live IS NULL OR idempotency_key IS NOT NULL)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

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

-- The idempotency keys of pruned jobs, while they are valid: a repeated create returns the id of the pruned job.
CREATE TABLE holdfast_kept_keys (
    tenant          text        NOT NULL,
    idempotency_key text        NOT NULL,
    fingerprint     text        NOT NULL,
    job_id          uuid        NOT NULL,
    state           text        NOT NULL,
    policy          integer     NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz,          -- NULL: never
    kept_at         timestamptz NOT NULL, -- the job is deleted at least a minute later
    PRIMARY KEY (tenant, idempotency_key)
);

CREATE INDEX holdfast_kept_keys_of_job ON holdfast_kept_keys (job_id);
CREATE INDEX holdfast_kept_keys_over ON holdfast_kept_keys (expires_at) WHERE expires_at IS NOT NULL;

CREATE FUNCTION holdfast_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'job % is %: only finished jobs may be deleted', OLD.id, OLD.state USING ERRCODE = 'HF001';
    ELSIF TG_NAME = 'holdfast_jobs_attempt_left' THEN
        RAISE EXCEPTION 'job % waits for an attempt: attempt must stay below max_attempts; cancel it instead', OLD.id
            USING ERRCODE = 'HF001';
    ELSIF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'job %: no job starts as %', NEW.id, NEW.state USING ERRCODE = 'HF001';
    ELSIF OLD.finished_at IS NOT NULL THEN
        -- The only allowed change of a finished row: a later create takes over its idempotency key.
        IF OLD.key_live AND NOT NEW.key_live AND to_jsonb(NEW) - 'key_live' = to_jsonb(OLD) - 'key_live' THEN
            RETURN NEW;
        END IF;
        RAISE EXCEPTION 'job % is %, which is final; redrive makes a new job', OLD.id, OLD.state USING ERRCODE = 'HF001';
    ELSIF OLD.state = NEW.state THEN
        RAISE EXCEPTION 'job %: its id, tenant, moves, epoch and lease token change only with its state', OLD.id
            USING ERRCODE = 'HF001';
    ELSE
        RAISE EXCEPTION 'job %: lifecycle % has no move % -> %', OLD.id, OLD.lifecycle, OLD.state, NEW.state
            USING ERRCODE = 'HF001';
    END IF;
END $$;

CREATE TRIGGER holdfast_jobs_first_state BEFORE INSERT ON holdfast_jobs FOR EACH ROW
    WHEN (NEW.epoch <> 0
          OR NOT (NEW.state = 'queued' OR NEW.state = 'created' AND NEW.moves & 1 <> 0))
    EXECUTE FUNCTION holdfast_refuse_move();

-- The check is in the WHEN clause, so that a legal move costs no function call. PostgreSQL parses the clause again for
-- every statement, and a CASE with a branch for each pair would cost more than the move itself: the pair is looked up in
-- a string, and its offset there is its bit.
CREATE TRIGGER holdfast_jobs_legal_move BEFORE UPDATE ON holdfast_jobs FOR EACH ROW
    WHEN (
        OLD.finished_at IS NOT NULL
        OR NEW.id <> OLD.id
        OR NEW.tenant <> OLD.tenant
        OR NEW.moves <> OLD.moves
        OR CASE WHEN NEW.state = OLD.state
                THEN NEW.epoch <> OLD.epoch
                     OR NEW.lease_token IS DISTINCT FROM OLD.lease_token
                ELSE NEW.epoch - OLD.epoch <> (NEW.state = 'running')::integer
                     OR 0 = (OLD.moves << 1) & (1 << (6 + strpos(
                            'creque querun retrun retque runsuc runret rundea runque runrej runcan '
                            'retdea querej crecan quecan retcan', left(OLD.state, 3) || left(NEW.state, 3))) / 7)
           END
    )
    EXECUTE FUNCTION holdfast_refuse_move();

-- Also for a retry that is not due yet. (A retry that is about to move to `dead` has no attempt left for a moment.)
CREATE TRIGGER holdfast_jobs_attempt_left BEFORE UPDATE OF attempt, max_attempts ON holdfast_jobs FOR EACH ROW
    WHEN (NEW.state = OLD.state AND NEW.due IS NOT NULL AND NEW.attempt >= NEW.max_attempts)
    EXECUTE FUNCTION holdfast_refuse_move();

-- When a child finishes, its parent is checked, if it waits for children. A locked parent is skipped: it is also checked
-- periodically. (An AFTER trigger would fetch the row again after every update, also after heartbeats.)
CREATE FUNCTION holdfast_child_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast_jobs
       SET run_at = NEW.updated_at
     WHERE id = (SELECT id
                   FROM holdfast_jobs
                  WHERE id = NEW.parent_id
                    AND state = 'queued'
                    AND reason = 'waiting_for_children'
                    AND run_at > NEW.updated_at
                    FOR UPDATE SKIP LOCKED);
    RETURN NEW;
END $$;

CREATE TRIGGER holdfast_jobs_child_ended BEFORE UPDATE OF finished_at ON holdfast_jobs FOR EACH ROW
    WHEN (NEW.parent_id IS NOT NULL)
    EXECUTE FUNCTION holdfast_child_ended();

CREATE TRIGGER holdfast_jobs_kept BEFORE DELETE ON holdfast_jobs FOR EACH ROW
    WHEN (OLD.finished_at IS NULL)
    EXECUTE FUNCTION holdfast_refuse_move();

-- History -------------------------------------------------------------------------------------------------------------

-- One row about the event log: `base` plus the transaction id is the position of an event (PostgreSQL only: see `rebase`);
-- `pruned` is the last position of which events were pruned.
CREATE TABLE holdfast_event_log (
    only_row boolean PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    base     bigint  NOT NULL,
    pruned   bigint  NOT NULL
);
INSERT INTO holdfast_event_log (base, pruned) VALUES (0, 0);

CREATE FUNCTION holdfast_pos() RETURNS bigint LANGUAGE sql STABLE AS
    'SELECT pg_current_xact_id()::text::bigint + base FROM holdfast_event_log';

-- Events. No foreign keys: they would lock the job row on every insert, and events may outlive the job.
-- `pos` is derived from the transaction id: a reader of all jobs stays below the oldest open transaction and so misses
-- nothing. If the previous event of the job has a higher `pos`, that is used, so that the events of a job are in order.
CREATE TABLE holdfast_events (
    job_id     uuid        NOT NULL,
    seq        integer     NOT NULL,
    pos        bigint      NOT NULL DEFAULT holdfast_pos(),
    tenant     text        NOT NULL,
    at         timestamptz NOT NULL,
    verb       text        NOT NULL,
    from_state text,
    to_state   text,
    attempt    integer     NOT NULL,
    epoch      integer     NOT NULL,
    actor      text        NOT NULL,
    worker_id  uuid,
    reason     text,
    step       text,
    percent    double precision,
    data       text,
    PRIMARY KEY (job_id, seq),
    -- Which actor may make which move: only workers start and finish jobs, only workers and the system fail them, and so
    -- on. Events without a move are open to every actor, a first state to the actors that may move to it later. A string,
    -- for the reason given at holdfast_jobs_legal_move.
    CONSTRAINT holdfast_events_actor CHECK (strpos(
        'cre-client cre-api cre-worker cre-system '
        'creque-client creque-api creque-system crecan-client crecan-api crecan-system '
        'querun-worker querej-system quecan-client quecan-api quecan-system '
        'runrun-worker runsuc-worker runret-worker runret-system rundea-worker rundea-system runque-worker '
        'runque-system runrej-worker runcan-worker runcan-system '
        'retrun-worker retque-api retque-system retdea-worker retdea-system retcan-client retcan-api retcan-system ',
        coalesce(left(from_state, 3), '') || coalesce(left(to_state, 3), '') || '-' || actor || ' ') > 0)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX holdfast_events_feed ON holdfast_events (pos, job_id, seq);
CREATE INDEX holdfast_events_failures ON holdfast_events (pos) WHERE verb = 'fail' OR verb = 'reap';

CREATE TABLE holdfast_attempts (
    job_id     uuid        NOT NULL,
    epoch      integer     NOT NULL,
    tenant     text        NOT NULL,
    attempt    integer     NOT NULL,
    worker_id  uuid        NOT NULL,
    instance   text,
    token      uuid        NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    outcome    text        NOT NULL,
    to_state   text        NOT NULL,
    reason     text,
    error      text,
    PRIMARY KEY (job_id, epoch)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE FUNCTION holdfast_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'HF002';
END $$;

CREATE TRIGGER holdfast_events_append_only BEFORE UPDATE ON holdfast_events FOR EACH ROW
    EXECUTE FUNCTION holdfast_refuse_rewrite();

-- The only allowed change of an attempt: when its job is pruned, its error is deleted, which may contain payload data.
CREATE TRIGGER holdfast_attempts_append_only BEFORE UPDATE ON holdfast_attempts FOR EACH ROW
    WHEN (NEW.error IS NOT NULL OR to_jsonb(NEW) - 'error' <> to_jsonb(OLD) - 'error')
    EXECUTE FUNCTION holdfast_refuse_rewrite();

-- The position of each reader of the event log.
CREATE TABLE holdfast_readers (
    name    text        PRIMARY KEY,
    pos     bigint      NOT NULL,
    job_id  uuid        NOT NULL,
    seq     integer     NOT NULL,
    read_at timestamptz NOT NULL
);

-- Parts of jobs -------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_parts (
    job_id       uuid    NOT NULL,
    name         text    NOT NULL,
    tenant       text    NOT NULL,
    epoch        integer NOT NULL,
    place        integer NOT NULL,
    status       text    NOT NULL CHECK (status IN ('pending', 'in_progress', 'completed', 'failed', 'skipped')),
    percent      double precision CHECK (percent BETWEEN 0 AND 100),
    total        integer,
    done         integer,
    error        text,
    data         text,
    started_at   timestamptz,
    completed_at timestamptz,
    PRIMARY KEY (job_id, name)
);

-- Extensions ----------------------------------------------------------------------------------------------------------

-- The known extensions, and when a process that has them last did maintenance.
CREATE TABLE holdfast_extensions (
    name    text        PRIMARY KEY,
    seen_at timestamptz NOT NULL
);

-- Maintenance tasks of extensions: when each is due, when it last succeeded, and its failures since then.
CREATE TABLE holdfast_maintenance (
    extension text    NOT NULL,
    task      text    NOT NULL,
    due_at    timestamptz NOT NULL,
    ran_at    timestamptz,
    failures  integer NOT NULL DEFAULT 0,
    error     text,
    PRIMARY KEY (extension, task)
);

-- Moves that a hook has failed, to be retried at `next_at`. With `failures` 0, a guard has deferred the move.
CREATE TABLE holdfast_hook_failures (
    job_id    uuid        NOT NULL,
    verb      text        NOT NULL,
    extension text        NOT NULL,
    failures  integer     NOT NULL,
    error     text        NOT NULL,
    next_at   timestamptz NOT NULL,
    PRIMARY KEY (job_id, verb)
);

-- Sweeps and statistics that all processes share -----------------------------------------------------------------------

-- When the last sweep succeeded, in any process. After a gap, expired leases are not reaped until `grace_until`.
CREATE TABLE holdfast_sweeps (
    name        text        PRIMARY KEY,
    swept_at    timestamptz NOT NULL,
    grace_until timestamptz
);

-- Statistics that one process counts and all processes read.
CREATE TABLE holdfast_counted (
    name     text        PRIMARY KEY,
    taken_at timestamptz NOT NULL,       -- when the figures were counted
    asked_at timestamptz NOT NULL,       -- when a process last began to count; others wait for it up to a timeout
    figures  text        NOT NULL
);

-- Keys, sessions, secrets and the audit log ---------------------------------------------------------------------------

-- Only a digest of the secret part is stored; the id is public.
CREATE TABLE holdfast_keys (
    id              text             PRIMARY KEY,
    kind            text             NOT NULL CHECK (kind IN ('client', 'worker', 'admin')),
    tenant          text             NOT NULL,
    name            text,
    subject         text,                      -- the user that it authenticates
    digest          text             NOT NULL,
    scopes          text             NOT NULL,
    worker_id       uuid,                      -- a worker key belongs to one worker
    rate_per_second double precision,
    expires_in      double precision,          -- seconds, as created; a replacement key gets the same
    created_at      timestamptz      NOT NULL,
    expires_at      timestamptz,
    revoked_at      timestamptz,
    used_at         timestamptz,
    CONSTRAINT holdfast_keys_worker CHECK ((kind = 'worker') = (worker_id IS NOT NULL))
);

CREATE INDEX holdfast_keys_of_worker ON holdfast_keys (worker_id) WHERE worker_id IS NOT NULL;

-- Browser sessions, signed in with a key. Only a digest of the cookie is stored.
CREATE TABLE holdfast_sessions (
    digest     text        PRIMARY KEY,
    key_id     text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE INDEX holdfast_sessions_over ON holdfast_sessions (expires_at);

-- Signing secrets that all servers of this database share, created by the first that needs one.
CREATE TABLE holdfast_secrets (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Each entry contains a digest of itself and of the previous entry, which reveals changes and gaps.
CREATE TABLE holdfast_audit (
    seq      bigint      PRIMARY KEY,
    at       timestamptz NOT NULL,
    actor    text        NOT NULL,
    action   text        NOT NULL,
    subject  text,
    detail   text        NOT NULL,
    previous text        NOT NULL,
    digest   text        NOT NULL
);

CREATE TRIGGER holdfast_audit_append_only BEFORE UPDATE OR DELETE ON holdfast_audit FOR EACH ROW
    EXECUTE FUNCTION holdfast_refuse_rewrite();

-- Webhooks and alerts -------------------------------------------------------------------------------------------------

CREATE TABLE holdfast_webhooks (
    id              uuid        PRIMARY KEY,
    tenant          text        NOT NULL,
    name            text,
    url             text        NOT NULL,
    secrets         text        NOT NULL,      -- the newest first; all of them sign during a rotation
    wanted          text        NOT NULL,      -- which events, of which job types and queues
    enabled         boolean     NOT NULL DEFAULT TRUE,
    disabled_reason text,
    failing_since   timestamptz,
    created_at      timestamptz NOT NULL
);

CREATE TABLE holdfast_deliveries (
    id           uuid        PRIMARY KEY,
    webhook_id   uuid        NOT NULL,
    tenant       text        NOT NULL,
    job_id       uuid        NOT NULL,
    seq          integer     NOT NULL,
    event        text        NOT NULL,
    body         text        NOT NULL,
    state        text        NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    tries        integer     NOT NULL DEFAULT 0,
    log          text        NOT NULL,         -- the last attempts: time, duration, response
    created_at   timestamptz NOT NULL,
    next_at      timestamptz NOT NULL,
    finished_at  timestamptz,
    UNIQUE (webhook_id, job_id, seq)
);

CREATE INDEX holdfast_deliveries_due ON holdfast_deliveries (webhook_id, next_at) WHERE state = 'pending';
CREATE INDEX holdfast_deliveries_of ON holdfast_deliveries (webhook_id, id);
CREATE INDEX holdfast_deliveries_old ON holdfast_deliveries (next_at);

-- When an alert of each kind was last sent, and how many were suppressed since.
CREATE TABLE holdfast_alerts (
    kind    text        PRIMARY KEY,
    sent_at timestamptz,
    held    integer     NOT NULL DEFAULT 0,
    memory  text                              -- the latest failures of each job type, for the alert on failures
);
