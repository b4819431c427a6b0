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
    limits      text        NOT NULL DEFAULT '{}',
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

-- Tenants that have jobs. `weight`: its share of claims beside other tenants.
CREATE TABLE holdfast_tenants (
    id     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text    NOT NULL UNIQUE,
    weight integer NOT NULL DEFAULT 1
);

INSERT INTO holdfast_tenants (name) VALUES ('default');

CREATE SEQUENCE holdfast_lane_numbers;

-- A lane is the set of jobs that the same workers may claim. A claim selects lanes first, then the head of each, so it
-- never reads jobs that the worker may not claim. Its id is the id of its tenant times 2^32 plus a number, so that the
-- lanes of a tenant are neighbours in an index. The digest covers all other columns: together they may exceed the size
-- limit of a PostgreSQL index entry. `limits`: the named limits of its jobs, with the units that each job takes.
CREATE TABLE holdfast_lanes (
    id            bigint           PRIMARY KEY,
    digest        text             NOT NULL UNIQUE,
    tenant        text             NOT NULL,
    queue         text             NOT NULL,
    type          text             NOT NULL,
    requires      text             NOT NULL,
    prefers       text             NOT NULL,
    limits        text             NOT NULL DEFAULT '{}',
    defer_seconds double precision NOT NULL
);

CREATE INDEX holdfast_lanes_of_type ON holdfast_lanes (type, queue);
CREATE INDEX holdfast_lanes_of_queue ON holdfast_lanes (queue);

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
    -- Columns that claim and complete leave alone are first and last, so that the write-ahead log gets only what is between.
    id                  uuid             PRIMARY KEY,
    lane                bigint           NOT NULL,
    key_lane            bigint,                     -- of a job with a key: see holdfast_key_lanes
    run_at              timestamptz      NOT NULL,
    created_at          timestamptz      NOT NULL,
    lease_seconds       double precision NOT NULL,
    policy              integer          NOT NULL,
    moves               integer          NOT NULL,  -- a bit per legal pair of states, fixed at insert
    max_attempts        integer          NOT NULL,
    priority            smallint         NOT NULL,
    late_writes         boolean          NOT NULL,
    -- What they change.
    pos                 bigint           NOT NULL DEFAULT 0,-- of its last event; PostgreSQL only
    updated_at          timestamptz      NOT NULL,
    version             integer          NOT NULL,  -- the number of its events
    epoch               integer          NOT NULL DEFAULT 0,
    attempt             integer          NOT NULL DEFAULT 0,
    failures            integer          NOT NULL DEFAULT 0,
    lost                integer          NOT NULL DEFAULT 0,
    state               text             NOT NULL,
    moved_by            text             NOT NULL,  -- the actor of the last event
    limited             boolean,                    -- of a running job: it holds units of limits
    due                 boolean,                    -- TRUE: claimable now; FALSE: waits for run_at; NULL: neither
    came_from           text,                       -- the state before this one
    reason              text,                       -- why it is in this state
    started_at          timestamptz,
    claimed_at          timestamptz,
    finished_at         timestamptz,
    progress_at         timestamptz,
    lease_worker        uuid,                       -- of a job that is not running: of its last lease
    lease_instance      text,
    lease_token         uuid,
    lease_expires_at    timestamptz,                -- only of a running job
    step                text,
    percent             double precision,
    result              text,
    error               text,
    -- The rest.
    tenant              text             NOT NULL,
    type                text             NOT NULL,
    queue               text             NOT NULL,
    lifecycle           text             NOT NULL,
    payload             text             NOT NULL,
    cancel_requested_at timestamptz,
    counters            text,
    eta_at              timestamptz,
    checkpoint          text,
    tags                text,
    trace               text,
    needs               text,                       -- extensions whose hooks every move runs, as JSON
    woken_epoch         integer,                    -- the execution in which it was woken: if released, it is due at once
    parked              text,                       -- created, waiting, retrying, dead, canceled, rejected or NULL
    parked_at           timestamptz,                -- its time in that list: created_at, run_at or finished_at
    idempotency_key     text,
    key_live            boolean,
    fingerprint         text,
    partition_key       text,
    limit_key           text,
    fairness_key        text,
    subject             text,
    redrive_of          uuid,
    root_id             uuid,
    parent_id           uuid
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- No index, and no condition of one, may name a column that claim or complete changes: then both update the row within
-- its page and no index (heap-only tuples), for which the fill factor leaves room. So the jobs that are claimable and
-- those that are running have tables of their own, and every other list of jobs has a place in `parked`.
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (parked, parked_at) WHERE parked IS NOT NULL;
CREATE UNIQUE INDEX holdfast_jobs_key_once ON holdfast_jobs (tenant, idempotency_key) WHERE key_live;
CREATE INDEX holdfast_jobs_redriven ON holdfast_jobs (redrive_of) WHERE redrive_of IS NOT NULL;
CREATE INDEX holdfast_jobs_of_subject ON holdfast_jobs (subject, id) WHERE subject IS NOT NULL;
CREATE INDEX holdfast_jobs_of_parent ON holdfast_jobs (parent_id, id) WHERE parent_id IS NOT NULL;

-- The claimable jobs: each job with `due` has one row here. It is inserted with the job or by its trigger, and deleted by
-- the claim or by the trigger. Only who has locked the job touches it, so it needs no lock of its own.
CREATE TABLE holdfast_ready (
    lane     bigint      NOT NULL,     -- `key_lane` of a job with a key, `lane` of others
    priority smallint    NOT NULL,
    hooked   boolean     NOT NULL,     -- the job needs hooks of extensions
    id       uuid        NOT NULL,
    run_at   timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX holdfast_ready_order ON holdfast_ready (lane, priority DESC, id);

-- Deletes rows of lanes whose jobs are not claimable. They are left where a job was deferred and made due again between
-- the snapshot of a claim and its lock on the job.
CREATE FUNCTION holdfast_drop_stale_ready(lanes bigint[]) RETURNS bigint LANGUAGE sql AS $$
    WITH stale AS (
        SELECT first.place
          FROM unnest(lanes) AS wanted(lane)
         CROSS JOIN LATERAL (SELECT ctid AS place, id
                               FROM holdfast_ready
                              WHERE lane = wanted.lane
                              ORDER BY priority DESC, id
                              LIMIT 100) AS first
         WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs WHERE holdfast_jobs.id = first.id AND due)
    ), dropped AS (
        DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM stale)) RETURNING 1
    )
    SELECT count(*) FROM dropped
$$;

-- Limits --------------------------------------------------------------------------------------------------------------

-- What bounds the claims of jobs: `type:NAME`, `queue:NAME`, `tenant:NAME`, `key:TYPE` (for each key of the type),
-- `key:TYPE KEY` (for this one), or a name of its own. `rate`: units a second, `burst`: those that may be saved up.
-- `declared`: what the app declares, as JSON. `set_by`: the operator who set other values.
CREATE TABLE holdfast_limits (
    name        text             PRIMARY KEY,
    concurrency integer          CHECK (concurrency >= 0),
    rate        double precision CHECK (rate >= 0),
    burst       double precision CHECK (burst >= 1),
    declared    text,
    set_by      text,
    updated_at  timestamptz      NOT NULL,
    CHECK ((rate IS NULL) = (burst IS NULL))
);

-- The units that running jobs hold. A bucket is a limit, or one key of a limit: `key:TYPE KEY`. The claim inserts them
-- while it holds the lock of the bucket; the trigger deletes them when the job is no longer running.
CREATE TABLE holdfast_limit_units (
    bucket text    NOT NULL,
    job_id uuid    NOT NULL,
    units  integer NOT NULL,
    PRIMARY KEY (bucket, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX holdfast_limit_units_of_job ON holdfast_limit_units (job_id);

-- The tokens of buckets with a rate, as of `filled_at`. A bucket without a row is full.
CREATE TABLE holdfast_limit_tokens (
    bucket    text             PRIMARY KEY,
    tokens    double precision NOT NULL,
    filled_at timestamptz      NOT NULL,
    full_at   timestamptz      NOT NULL
);

-- The keyed lanes that may have claimable jobs: each limit key and each fairness key of a lane has its own, with a number
-- below 0, so that a claim does not walk over them. A claim takes those whose `turn_at` has come, first the one that has
-- waited longest `since` it had a job (NULL: since `turn_at`). Without `turn_at`, all units of the bucket are held. A row is inserted where a job becomes claimable or frees its units, unless the lane has one; a claim
-- replaces the rows that it sees by one.
CREATE TABLE holdfast_key_lanes (
    lane     bigint NOT NULL,
    key_lane bigint NOT NULL,
    bucket   text,
    turn_at  timestamptz,
    since    timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX holdfast_key_lanes_turn ON holdfast_key_lanes (lane, turn_at, since) WHERE turn_at IS NOT NULL;
CREATE INDEX holdfast_key_lanes_of ON holdfast_key_lanes (key_lane);
CREATE INDEX holdfast_key_lanes_full ON holdfast_key_lanes (bucket) WHERE turn_at IS NULL;

-- Running jobs ----------------------------------------------------------------------------------------------------------

-- The running jobs: the ids that each claim has leased, until maintenance finds that all of them have ended. None of their
-- leases expires before `expires_at`, as long as the clock is not set back. `worker`, `instance`: which process claimed them.
CREATE TABLE holdfast_claim_batches (
    claimed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    worker     uuid        NOT NULL,
    instance   text,
    ids        uuid[]      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE holdfast_claim_batches ALTER COLUMN ids SET STORAGE EXTERNAL;

CREATE VIEW holdfast_running AS
    SELECT *
      FROM holdfast_jobs
     WHERE id = ANY (ARRAY(SELECT unnest(ids) FROM holdfast_claim_batches))
       AND state = 'running';

-- Deletes the batches whose jobs have all ended, and shortens those of which most have.
CREATE FUNCTION holdfast_drop_claim_batches(before timestamptz, most integer) RETURNS bigint LANGUAGE sql AS $$
    WITH old AS MATERIALIZED (
        SELECT ctid AS place, ids, ARRAY(SELECT id FROM holdfast_jobs WHERE id = ANY (ids) AND state = 'running') AS held
          FROM holdfast_claim_batches
         WHERE claimed_at <= before
         ORDER BY random()  -- so that those that stay do not hide the others
         LIMIT most
           FOR UPDATE SKIP LOCKED
    ), dropped AS (
        DELETE FROM holdfast_claim_batches WHERE ctid = ANY (ARRAY(SELECT place FROM old WHERE held = '{}')) RETURNING 1
    ), shortened AS (
        UPDATE holdfast_claim_batches
           SET ids = old.held
          FROM old
         WHERE holdfast_claim_batches.ctid = old.place
           AND cardinality(old.held) BETWEEN 1 AND cardinality(old.ids) / 2
    )
    SELECT count(*) FROM dropped
$$;

-- All unfinished jobs.
CREATE VIEW holdfast_open_jobs AS
    SELECT id, type, needs FROM holdfast_jobs WHERE id = ANY (ARRAY(SELECT id FROM holdfast_ready)) AND due
     UNION ALL
    SELECT id, type, needs FROM holdfast_jobs WHERE parked IN ('created', 'waiting', 'retrying')
     UNION ALL
    SELECT id, type, needs FROM holdfast_running;

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

-- The bit of a pair of states in `moves`.
CREATE FUNCTION holdfast_bit(source text, target text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT (1 << (6 + strpos('creque querun retrun retque runsuc runret rundea runque runrej runcan '
                             'retdea querej crecan quecan retcan', left(source, 3) || left(target, 3))) / 7) >> 1
$$;

-- Which actor may make which move: only workers start and finish jobs, only workers and the system fail them, and so on.
CREATE FUNCTION holdfast_may_move(source text, target text, actor text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT strpos('creque-client creque-api creque-system crecan-client crecan-api crecan-system '
                  'querun-worker querej-system quecan-client quecan-api quecan-system '
                  'runsuc-worker runret-worker runret-system rundea-worker rundea-system runque-worker '
                  'runque-system runrej-worker runcan-worker runcan-system '
                  'retrun-worker retque-api retque-system retdea-worker retdea-system retcan-client retcan-api retcan-system ',
                  left(source, 3) || left(target, 3) || '-' || actor || ' ') > 0
$$;

-- Every change of a job passes this trigger: the legal moves, their actors, the shape of each state, the fencing columns.
-- It is a function and not a set of constraints, because PostgreSQL parses constraints, and the WHEN clauses of triggers,
-- again for every statement. Claim and complete of plain jobs, which are most changes, leave by the first two RETURNs.
CREATE FUNCTION holdfast_check_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    refusal text;
BEGIN
    IF NEW.state = 'succeeded' THEN
        IF OLD.state = 'running' AND OLD.moves & 16 <> 0 AND NEW.moved_by = 'worker' AND NEW.epoch = OLD.epoch
           AND NEW.attempt = OLD.attempt AND NEW.percent BETWEEN 0 AND 100
           AND NEW.due IS NULL AND NEW.finished_at IS NOT NULL AND NEW.lease_expires_at IS NULL
           AND NEW.parent_id IS NULL AND OLD.limited IS NULL THEN
            RETURN NEW;
        END IF;
    ELSIF NEW.state = 'running' AND OLD.state = 'queued' THEN
        IF OLD.moves & 2 <> 0 AND NEW.moved_by = 'worker' AND NEW.epoch = OLD.epoch + 1
           AND NEW.attempt <= NEW.max_attempts AND NEW.attempt <= NEW.epoch
           AND NEW.due IS NULL AND NEW.finished_at IS NULL AND NEW.lease_expires_at IS NOT NULL
           AND NEW.lease_token IS NOT NULL AND NEW.lease_worker IS NOT NULL THEN
            RETURN NEW;
        END IF;
    END IF;
    refusal := holdfast_refusal(OLD, NEW);
    IF refusal IS NULL THEN
        RETURN holdfast_place_job(OLD, NEW);
    END IF;
    IF OLD.finished_at IS NOT NULL AND OLD.key_live AND NOT NEW.key_live
       AND to_jsonb(NEW) - 'key_live' = to_jsonb(OLD) - 'key_live' THEN
        RETURN NEW;  -- the only allowed change of a finished row: a later create takes over its idempotency key
    END IF;
    RAISE EXCEPTION '%', substr(refusal, 7) USING ERRCODE = left(refusal, 5);
END $$;

CREATE TRIGGER holdfast_jobs_checked BEFORE UPDATE ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_check_job();

-- Columns that no move changes.
CREATE FUNCTION holdfast_check_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.moves <> OLD.moves THEN
        RAISE EXCEPTION 'job %: its id, tenant and moves never change', OLD.id USING ERRCODE = 'HF001';
    ELSIF NEW.priority NOT BETWEEN -100 AND 100 OR NEW.key_live AND NEW.idempotency_key IS NULL THEN
        RAISE EXCEPTION 'job %: its columns do not fit the state %', OLD.id, OLD.state USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER holdfast_jobs_fixed BEFORE UPDATE OF id, tenant, moves, priority, key_live, idempotency_key
    ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_check_fixed();

-- The bucket of a job's limit key.
CREATE FUNCTION holdfast_key_bucket(job holdfast_jobs) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT 'key:' || job.type || ' ' || job.limit_key $$;

-- The job makes its keyed lane claimable, unless a row does so already; one of a full bucket does, if no units were freed.
-- The lock keeps claims from deleting that row before this transaction has ended, and neither waits for the other.
CREATE FUNCTION holdfast_open_key_lane(job holdfast_jobs, freed boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN  -- else a lock may fail the whole transaction
        PERFORM 1
           FROM holdfast_key_lanes
          WHERE key_lane = job.key_lane
            AND (turn_at IS NOT NULL OR NOT freed)
          LIMIT 1
            FOR KEY SHARE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
        SELECT job.lane, job.key_lane, holdfast_key_bucket(job), job.updated_at, min(since)
          FROM holdfast_key_lanes
         WHERE key_lane = job.key_lane;
    END IF;
END $$;

-- The job is no longer running: lanes whose bucket was full have another turn.
CREATE FUNCTION holdfast_free_units(job holdfast_jobs) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast_limit_units WHERE job_id = job.id;
    IF job.limit_key IS NOT NULL THEN
        PERFORM holdfast_open_key_lane(job, TRUE);
        INSERT INTO holdfast_key_lanes (lane, key_lane, bucket, turn_at, since)
        SELECT lane, key_lane, bucket, job.updated_at, min(since)
          FROM holdfast_key_lanes AS waiting
         WHERE bucket = holdfast_key_bucket(job)
           AND turn_at IS NULL
           AND NOT EXISTS (SELECT 1
                             FROM holdfast_key_lanes AS open
                            WHERE open.key_lane = waiting.key_lane
                              AND open.turn_at IS NOT NULL)
         GROUP BY lane, key_lane, bucket;
    END IF;
END $$;

-- The columns of a job that say in which list it is, and its row in holdfast_ready.
CREATE FUNCTION holdfast_place_job(before holdfast_jobs, job holdfast_jobs) RETURNS holdfast_jobs LANGUAGE plpgsql AS $$
BEGIN
    job.parked := CASE
        WHEN job.due IS FALSE THEN CASE job.state WHEN 'queued' THEN 'waiting' ELSE job.state END
        WHEN job.state IN ('created', 'dead', 'canceled', 'rejected') THEN job.state
    END;
    job.parked_at := CASE WHEN job.parked IS NULL THEN NULL
                          WHEN job.state = 'created' THEN job.created_at
                          ELSE coalesce(job.finished_at, job.run_at) END;
    -- A claim deletes the row itself, in the statement that updates the job.
    IF before.due AND job.state <> 'running'
       AND (job.due IS NOT TRUE OR before.lane <> job.lane OR before.key_lane IS DISTINCT FROM job.key_lane
            OR before.priority <> job.priority OR before.run_at <> job.run_at
            OR (before.needs IS NULL) <> (job.needs IS NULL)) THEN
        DELETE FROM holdfast_ready
         WHERE lane = coalesce(before.key_lane, before.lane) AND priority = before.priority AND id = before.id;
        before.due := FALSE;
    END IF;
    IF job.due AND before.due IS NOT TRUE THEN
        INSERT INTO holdfast_ready (lane, priority, hooked, id, run_at)
        VALUES (coalesce(job.key_lane, job.lane), job.priority, job.needs IS NOT NULL, job.id, job.run_at);
        IF job.key_lane IS NOT NULL THEN
            PERFORM holdfast_open_key_lane(job, FALSE);
        END IF;
    END IF;
    IF before.limited AND before.state = 'running' AND job.state <> 'running' THEN
        PERFORM holdfast_free_units(job);
    END IF;
    IF job.parent_id IS NOT NULL AND job.finished_at IS NOT NULL THEN
        PERFORM holdfast_child_ended(job.parent_id, job.updated_at);
    END IF;
    RETURN job;
END $$;

-- Why a change of a job is refused: the SQLSTATE and the message; NULL if it is allowed.
CREATE FUNCTION holdfast_refusal(before holdfast_jobs, job holdfast_jobs) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN before.finished_at IS NOT NULL
        THEN format('HF001 job %s is %s, which is final; redrive makes a new job', before.id, before.state)
        WHEN job.state = before.state
             AND (job.epoch <> before.epoch OR job.lease_token IS DISTINCT FROM before.lease_token)
        THEN format('HF001 job %s: its epoch and lease token change only with its state', before.id)
        WHEN job.state = before.state AND job.due IS NOT NULL AND job.attempt >= job.max_attempts
        THEN format('HF001 job %s waits for an attempt: attempt must stay below max_attempts; cancel it instead', before.id)
        WHEN job.state <> before.state
             AND (before.moves & holdfast_bit(before.state, job.state) = 0
                  OR job.epoch - before.epoch <> (job.state = 'running')::integer)
        THEN format('HF001 job %s: lifecycle %s has no move %s -> %s', before.id, before.lifecycle, before.state, job.state)
        WHEN job.state <> before.state AND NOT holdfast_may_move(before.state, job.state, job.moved_by)
        THEN format('HF003 job %s: %s may not move it from %s to %s', before.id, job.moved_by, before.state, job.state)
        WHEN job.attempt NOT BETWEEN 0 AND job.max_attempts
             OR job.attempt > job.epoch
             OR job.moved_by NOT IN ('client', 'api', 'worker', 'system')
             OR job.percent NOT BETWEEN 0 AND 100
             OR (job.lease_expires_at IS NULL) <> (job.state <> 'running')
             OR CASE job.state
                    WHEN 'running'
                    THEN job.due IS NOT NULL OR job.finished_at IS NOT NULL
                         OR job.lease_token IS NULL OR job.lease_worker IS NULL
                    WHEN 'queued' THEN job.due IS NULL OR job.finished_at IS NOT NULL OR job.attempt >= job.max_attempts
                    WHEN 'retrying'
                    THEN job.due IS NULL OR job.finished_at IS NOT NULL OR job.due AND job.attempt >= job.max_attempts
                    WHEN 'created' THEN job.due IS NOT NULL OR job.finished_at IS NOT NULL
                    ELSE job.due IS NOT NULL OR job.finished_at IS NULL
                         OR job.state NOT IN ('succeeded', 'dead', 'canceled', 'rejected')
                END
        THEN format('23514 job %s: its columns do not fit the state %s', before.id, job.state)
    END
$$;

CREATE FUNCTION holdfast_check_new_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch = 0
       AND NEW.attempt = 0
       AND NEW.max_attempts > 0
       AND NEW.priority BETWEEN -100 AND 100
       AND NEW.finished_at IS NULL
       AND NEW.lease_token IS NULL
       AND NEW.lease_expires_at IS NULL
       AND NEW.moved_by IN ('client', 'api', 'worker', 'system')
       AND (NEW.key_live IS NULL OR NEW.idempotency_key IS NOT NULL)
       AND (CASE NEW.state
               WHEN 'queued' THEN NEW.due IS NOT NULL
               WHEN 'created' THEN NEW.due IS NULL AND NEW.moves & 1 <> 0
               ELSE FALSE
           END)
    THEN
        IF NEW.due IS NOT TRUE THEN
            NEW.parked := CASE NEW.state WHEN 'queued' THEN 'waiting' ELSE NEW.state END;
            NEW.parked_at := CASE NEW.state WHEN 'queued' THEN NEW.run_at ELSE NEW.created_at END;
        ELSIF NEW.key_lane IS NOT NULL THEN
            PERFORM holdfast_open_key_lane(NEW, FALSE);
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.epoch = 0 AND (NEW.state = 'queued' OR NEW.state = 'created' AND NEW.moves & 1 <> 0) THEN
        RAISE EXCEPTION 'job %: its columns do not fit the state %', NEW.id, NEW.state USING ERRCODE = '23514';
    END IF;
    RAISE EXCEPTION 'job %: no job starts as %', NEW.id, NEW.state USING ERRCODE = 'HF001';
END $$;

CREATE TRIGGER holdfast_jobs_first_state BEFORE INSERT ON holdfast_jobs FOR EACH ROW
    EXECUTE FUNCTION holdfast_check_new_job();

-- When a child finishes, its parent is checked, if it waits for children. A locked parent is skipped: it is also checked
-- periodically.
CREATE FUNCTION holdfast_child_ended(parent uuid, ended_at timestamptz) RETURNS void LANGUAGE sql AS $$
    UPDATE holdfast_jobs
       SET run_at = ended_at
     WHERE id = (SELECT id
                   FROM holdfast_jobs
                  WHERE id = parent
                    AND state = 'queued'
                    AND reason = 'waiting_for_children'
                    AND run_at > ended_at
                    FOR UPDATE SKIP LOCKED)
$$;

CREATE FUNCTION holdfast_keep_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % is %: only finished jobs may be deleted', OLD.id, OLD.state USING ERRCODE = 'HF001';
END $$;

CREATE TRIGGER holdfast_jobs_kept BEFORE DELETE ON holdfast_jobs FOR EACH ROW
    WHEN (OLD.finished_at IS NULL)
    EXECUTE FUNCTION holdfast_keep_job();

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
    pos        bigint      NOT NULL DEFAULT holdfast_pos(),
    at         timestamptz NOT NULL,
    seq        integer     NOT NULL,
    attempt    integer     NOT NULL,
    epoch      integer     NOT NULL,
    verb       text        NOT NULL,
    actor      text        NOT NULL,
    tenant     text        NOT NULL,
    from_state text,
    to_state   text,
    worker_id  uuid,
    reason     text,
    step       text,
    percent    double precision,
    data       text,
    instance   text,               -- of a claim: the process, and the token of the lease
    token      uuid,
    PRIMARY KEY (job_id, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

CREATE INDEX holdfast_events_feed ON holdfast_events (pos);
CREATE INDEX holdfast_events_failures ON holdfast_events (pos) WHERE verb = 'fail' OR verb = 'reap';

-- The attempts of pruned jobs, without their errors, which may contain payload data.
CREATE TABLE holdfast_kept_attempts (
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
    PRIMARY KEY (job_id, epoch)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

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

CREATE FUNCTION holdfast_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'HF002';
END $$;

CREATE TRIGGER holdfast_events_append_only BEFORE UPDATE ON holdfast_events FOR EACH ROW
    EXECUTE FUNCTION holdfast_refuse_rewrite();

CREATE TRIGGER holdfast_kept_attempts_append_only BEFORE UPDATE ON holdfast_kept_attempts FOR EACH ROW
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
