"""Markers for claims: the lanes with jobs, their heads, their turns, and the jobs that are taken."""

from __future__ import annotations

from holdfast.store.render.dialects import Text

_STEP = "CASE WHEN :by_tenant THEN walk.lane | 4294967295 ELSE walk.lane END"


# The lanes with claimable jobs in the order of their ids, one index probe each, up to the limit.
def _walk(after: str) -> str:
    begin, step = ("0", "walk.lane") if after == "zero" else (f":{after}", _STEP)
    return (
        "walk(lane, nth) AS (\n"
        f"    SELECT min(lane), 1 FROM holdfast_ready WHERE lane > {begin}\n"
        "     UNION ALL\n"
        f"    SELECT (SELECT min(r.lane) FROM holdfast_ready r WHERE r.lane > {step}), walk.nth + 1\n"
        "      FROM walk\n"
        "     WHERE walk.lane IS NOT NULL AND walk.nth < {limit}\n"
        ")"
    )


def _keyed(after: str) -> str:
    begin = "0" if after == "zero" else f":{after}"
    first = "SELECT min(k.lane) FROM holdfast_key_lanes k WHERE k.turn_at IS NOT NULL AND k.lane >"
    return (
        "keyed(lane, nth) AS (\n"
        f"    SELECT ({first} {begin}), 1\n"
        "     UNION ALL\n"
        f"    SELECT ({first} keyed.lane), keyed.nth + 1\n"
        "      FROM keyed\n"
        "     WHERE keyed.lane IS NOT NULL AND keyed.nth < {limit}\n"
        ")"
    )


# Not a join: it would read all keyed lanes.
_HAS_TURNS = "EXISTS (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = {} AND k.turn_at <= {{now}} LIMIT 1 OFFSET 0)"
# If more lanes have turns than the limit, those of the queues and types that are asked for are looked up as well.
_LISTED_KEYS = (
    "listed AS (\n    SELECT keyed.lane FROM keyed\n     UNION\n    SELECT matching.id\n"
    "      FROM (SELECT l.id FROM holdfast_lanes l\n"
    "             WHERE EXISTS (SELECT 1 FROM keyed WHERE keyed.nth = {limit} AND keyed.lane IS NOT NULL)\n"
    "               AND {any:queues l.queue text} AND {any:types l.type text} AND {has turns:l.id}\n"
    "             ORDER BY l.id LIMIT {limit}) AS matching\n)"
)


def _levels(asked: str) -> str:
    """One index probe for each priority of a lane, from the one that is asked for."""
    return (
        "levels(lane, priority, nth) AS (\n"
        f"    SELECT {asked}.lane, {asked}.priority, 1 FROM {{rows:{asked}(lane bigint, priority smallint)}}\n"
        "     UNION ALL\n"
        "    SELECT levels.lane, (SELECT max(r.priority) FROM holdfast_ready r "
        "WHERE r.lane = levels.lane AND r.priority < levels.priority), levels.nth + 1\n"
        "      FROM levels\n"
        "     WHERE levels.priority IS NOT NULL AND levels.nth < {limit}\n"
        ")"
    )


_ANY_KEYED = "EXISTS (SELECT 1 FROM holdfast_key_lanes WHERE turn_at IS NOT NULL)"
_NOT_PAUSED = (
    "NOT EXISTS (SELECT 1 FROM holdfast_queues q "
    "WHERE q.tenant = l.tenant AND q.name = l.queue AND q.paused_at IS NOT NULL LIMIT 1 OFFSET 0)"
)
_LACKED = "EXISTS (SELECT 1 FROM {items:l.%s} AS i WHERE i.value NOT IN (SELECT value FROM {items:%s.offers} AS o))"
_OPEN_LANE = f"{{any:queues l.queue text}} AND {{any:types l.type text}} AND {_NOT_PAUSED} AND NOT {{blocked:l}}"
_FITS_WORKER = (
    "(w.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:w.tenants} AS t)) "
    f"AND NOT {_LACKED % ('requires', 'w')}"
)
_WAITS = (
    f"CASE WHEN {_LACKED % ('prefers', 'w')} AND EXISTS (SELECT 1 FROM holdfast_workers other WHERE other.enabled "
    "AND (other.tenants IS NULL OR l.tenant IN (SELECT value FROM {items:other.tenants} AS t)) "
    "AND other.last_heartbeat_at >= {now-2 * other.heartbeat_seconds} AND other.liveness <> 'offline' "
    f"AND NOT {_LACKED % ('prefers', 'other')} AND NOT {_LACKED % ('requires', 'other')} "
    "AND NOT EXISTS (SELECT 1 FROM holdfast_running held WHERE held.lease_worker = other.id)) "
    "THEN l.defer_seconds ELSE 0 END"
)
_NEXT_TURN = (
    "(SELECT min((SELECT min(k.turn_at) FROM holdfast_key_lanes k WHERE k.lane = keyed.lane AND k.turn_at > {now})) "
    "FROM keyed JOIN holdfast_lanes l ON l.id = keyed.lane WHERE {any:queues l.queue text} AND {any:types l.type text})"
)
_MAY_TAKE = (
    "(r.run_at <= {now-wanted.waits} OR r.run_at > {now+5}) "
    "AND holdfast_jobs.attempt < holdfast_jobs.max_attempts AND {mine}"
)
_BEST = f"WHERE r.lane = wanted.lane AND r.priority BETWEEN wanted.floor AND wanted.ceiling AND {_MAY_TAKE}"
_OTHER_LANES = (
    "((SELECT min(lane) FROM holdfast_ready WHERE lane > 0 AND lane < :{0}) IS NOT NULL "
    "OR (SELECT max(lane) FROM holdfast_ready WHERE lane > :{0}) IS NOT NULL OR {{any keyed}})"
)
# A claim that has not read the lanes now, but a moment ago, checks that the worker may still claim from them and, if
# there was only one, that no other has jobs.
_STILL_OPEN = (
    "(NOT :unread OR EXISTS (SELECT 1 FROM holdfast_lanes l JOIN holdfast_workers w ON w.id = :worker "
    "WHERE l.id = wanted.lane AND w.enabled AND NOT {limited:l} AND {not paused} AND {fits worker} LIMIT 1 OFFSET 0)) "
    "AND (CAST(:only AS bigint) IS NULL OR NOT {other lanes:only})"
)
_BEST_ORDER = "ORDER BY r.priority DESC, r.id LIMIT"
_TURN_COLUMNS = ("key_lane", "bucket", "turn_at", "since")
_TURNS = (
    "SELECT k.key_lane, k.bucket, k.turn_at, coalesce(k.since, k.turn_at) AS since FROM holdfast_key_lanes k "
    "WHERE k.lane = listed.lane AND k.turn_at <= {now} AND NOT EXISTS (SELECT 1 FROM holdfast_key_lanes newer "
    "WHERE newer.key_lane = k.key_lane AND newer.turn_at > k.turn_at AND newer.turn_at <= {now}) "
    "ORDER BY k.turn_at, k.since"
)


def _locked(rows: str, order: str) -> str:
    """`best`, for PostgreSQL: the first of these rows whose jobs no other transaction has locked."""
    return (
        f"CROSS JOIN LATERAL (SELECT place, id FROM (SELECT r.place, r.id FROM {rows} "
        f"AND {{still open}} AND holdfast_jobs.due {order} {{limit}} "
        "FOR UPDATE OF holdfast_jobs SKIP LOCKED) AS first LIMIT wanted.most) AS best LIMIT :most"
    )


# Of one priority, behind the job :after. The fence (OFFSET) keeps the planner from walking all jobs by id.
BEST_BEHIND = _locked(
    "(SELECT ctid AS place, id, run_at FROM holdfast_ready WHERE lane = wanted.lane AND priority = wanted.floor "
    f"AND id > :after ORDER BY id OFFSET 0) AS r JOIN holdfast_jobs ON holdfast_jobs.id = r.id WHERE {_MAY_TAKE}",
    "ORDER BY r.id LIMIT",
)

SHARED: dict[str, Text] = {
    "walk": _walk,
    "keyed": _keyed,
    "listed": lambda _: _LISTED_KEYS,
    "levels": _levels,
    "turns": "(SELECT count(*) FROM (SELECT 1 FROM holdfast_key_lanes k WHERE k.lane = {0} AND k.turn_at <= {{now}} "
    "LIMIT 100) AS first)".format,
    "any keyed": _ANY_KEYED,
    "has turns": _HAS_TURNS.format,
    "open lane": _OPEN_LANE,
    "fits worker": _FITS_WORKER,
    "open to worker": "{open lane} AND {fits worker}",
    "other lanes": _OTHER_LANES.format,
    "not paused": _NOT_PAUSED,
    "waits of lane": _WAITS,
    "next turn": _NEXT_TURN,
    "lane of": "coalesce((SELECT k.lane FROM holdfast_key_lanes k WHERE k.key_lane = {0} LIMIT 1), {0})".format,
    "still open": _STILL_OPEN,
}


BY_DIALECT: dict[str, tuple[Text, Text]] = {
    # A random part for the claim and a part for each job: a random number for each row costs as much as its event.
    "token": (
        "(:token_prefix || lpad(to_hex(uuid_hash_extended(holdfast_jobs.id, 0) & 281474976710655), 12, '0'))::uuid",
        ":token_prefix || substr(holdfast_new_token(), -12)",
    ),
    "head of": (
        "LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = {} "
        "ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE".format,
        "LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = {} "
        "ORDER BY r.priority DESC, r.id LIMIT 1)".format,
    ),
    "head of key lane": (
        "LEFT JOIN LATERAL (SELECT priority, id, hooked FROM holdfast_ready WHERE lane = turn.key_lane "
        "ORDER BY priority DESC, id LIMIT 1) AS head ON TRUE",
        "LEFT JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r "
        "WHERE r.lane = turn.value->>0 ORDER BY r.priority DESC, r.id LIMIT 1)",
    ),
    "head of level": (
        "JOIN LATERAL (SELECT id, run_at FROM holdfast_ready WHERE lane = levels.lane AND priority = levels.priority "
        "ORDER BY id LIMIT 1) AS head ON TRUE",
        "JOIN holdfast_ready AS head ON head.id = (SELECT r.id FROM holdfast_ready r WHERE r.lane = levels.lane "
        "AND r.priority = levels.priority ORDER BY r.id LIMIT 1)",
    ),
    "turns of lane": (
        f"LEFT JOIN LATERAL ({_TURNS} LIMIT :most) AS turn ON l.id IS NOT NULL",
        f"LEFT JOIN json_each((SELECT json_group_array(json_array({', '.join(_TURN_COLUMNS)})) FROM ({_TURNS} "
        "LIMIT :most))) AS turn ON l.id IS NOT NULL",
    ),
    "turn": ("turn.{}".format, lambda column: f"turn.value->>{_TURN_COLUMNS.index(column)}"),
    "rows of key lanes": (
        "ctid = ANY (ARRAY(SELECT ctid FROM holdfast_key_lanes WHERE key_lane = ANY (:{}::bigint[]) "
        "FOR UPDATE SKIP LOCKED))".format,
        "key_lane IN (SELECT value FROM json_each(:{}))".format,
    ),
    "picked columns": ("best.place, best.id", "best.value AS id"),
    "best of lane": (
        _locked(f"holdfast_ready r JOIN holdfast_jobs ON holdfast_jobs.id = r.id {_BEST}", _BEST_ORDER).replace(
            "r.place", "r.ctid AS place"
        ),
        # SQLite would evaluate the condition on the lane for each row.
        "JOIN json_each(CASE WHEN {still open} THEN (SELECT json_group_array(id) FROM (SELECT r.id "
        f"FROM holdfast_ready r JOIN holdfast_jobs ON holdfast_jobs.id = r.id {_BEST} {_BEST_ORDER} :most)) END) "
        "AS best ON best.key < wanted.most",
    ),
    # The lock on a job covers its row of holdfast_ready.
    "taken": (
        ", taken AS (\n    DELETE FROM holdfast_ready WHERE ctid = ANY (ARRAY(SELECT place FROM picked))\n)",
        "",
    ),
    "found": (
        "WITH found AS (\n"
        "    DELETE FROM holdfast_ready AS r USING holdfast_jobs AS j\n"
        "     WHERE j.id = ANY (:{}::uuid[])\n"
        "       AND r.lane = coalesce(j.key_lane, j.lane) AND r.priority = j.priority AND r.id = j.id\n"
        ")\n".format,
        "",
    ),
    "in taken": ("= ANY (ARRAY(SELECT id FROM picked))", "IN (SELECT id FROM picked)"),
    "lane number": (
        "nextval('holdfast_lane_numbers')",
        "coalesce((SELECT max(l.id) & 4294967295 FROM holdfast_lanes l "
        "WHERE l.id BETWEEN t.id * 4294967296 AND t.id * 4294967296 + 4294967295), 0) + 1",
    ),
    "drop stale": ("holdfast_drop_stale_ready(:{})".format, "0 * coalesce(:{}, 0)".format),
    "stale batches": ("EXISTS (SELECT 1 FROM holdfast_claim_batches WHERE claimed_at <= {now-1})", "FALSE"),
    "drop batches": ("holdfast_drop_claim_batches({now-1}, {limit})", "0"),
    "may be expired": (
        "(SELECT * FROM holdfast_jobs WHERE state = 'running' AND id = ANY (ARRAY(SELECT unnest(ids) "
        "FROM holdfast_claim_batches WHERE expires_at <= {now} OR claimed_at > {now})))",  # or the clock was set back
        "holdfast_running",
    ),
    "claimed by": (
        "(SELECT * FROM holdfast_jobs WHERE state = 'running' AND id = ANY (ARRAY(SELECT unnest(ids) "
        "FROM holdfast_claim_batches WHERE {{any:{} instance text}})))".format,
        lambda _: "holdfast_running",
    ),
    "claims": (  # of processes, until all of their jobs have ended, and a little longer
        "(SELECT worker AS lease_worker, instance AS lease_instance FROM holdfast_claim_batches)",
        "holdfast_running",
    ),
    "some running": (
        "EXISTS (SELECT 1 FROM (SELECT ids FROM holdfast_claim_batches ORDER BY claimed_at DESC) AS newest "
        "WHERE EXISTS (SELECT 1 FROM holdfast_jobs AS running WHERE running.id = ANY (newest.ids) "
        "AND running.state = 'running' AND {} LIMIT 1 OFFSET 0))".format,
        "EXISTS (SELECT 1 FROM holdfast_running AS running WHERE {})".format,
    ),
}
