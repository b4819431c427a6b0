"""Markers for limits: the units and tokens that are left for the jobs of a lane or of a key."""

from __future__ import annotations

from holdfast.store.advisory_locks import NAMESPACE
from holdfast.store.render.dialects import Text

LIMITED_BY = ("type", "queue", "tenant")  # the columns of a lane that have limits of their own
ROUNDING = 1e-6  # of tokens; and of seconds: times are rounded to microseconds
_TOKENS = "{{least}}({0}.burst, coalesce(k.tokens + {0}.rate * {{seconds since:k.filled_at}}, {0}.burst))"


def _limits_of(lane: str) -> str:
    own = " UNION ALL ".join(f"SELECT '{kind}:' || {lane}.{kind} AS name, 1 AS units" for kind in LIMITED_BY)
    named = f"SELECT p.key, CAST(p.value AS integer) FROM {{pairs:{lane}.limits}} AS p"
    return f"FROM ({own} UNION ALL {named}) AS wanted JOIN holdfast_limits m ON m.name = wanted.name"


def limited(lane: str) -> str:
    return f"(EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 {_limits_of(lane)}))"


def _blocked(lane: str) -> str:
    used = "(SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = m.name)"
    return (
        f"(EXISTS (SELECT 1 FROM holdfast_limits) AND EXISTS (SELECT 1 {_limits_of(lane)} "
        "LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name "
        f"WHERE m.concurrency < wanted.units + {used} "
        f"OR {{least}}(wanted.units, m.burst) > {{tokens:m}} + {ROUNDING} * (1 + m.rate)))"
    )


def _next_tokens() -> str:
    """Of each lane the limit that has tokens last, of all lanes the one that has them first."""
    missing = "{least}(wanted.units, m.burst) - {tokens:m}"
    of_lane = (
        f"SELECT (SELECT max(({missing}) / m.rate) {_limits_of('l')} "
        "LEFT JOIN holdfast_limit_tokens k ON k.bucket = m.name "
        f"WHERE m.rate > 0 AND {missing} > {ROUNDING} * (1 + m.rate)) AS seconds FROM {{}} AS lanes "
        "JOIN holdfast_lanes l ON l.id = lanes.lane WHERE EXISTS (SELECT 1 FROM holdfast_limits) "
        "AND {any:queues l.queue text} AND {any:types l.type text}"
    )
    both = " UNION ALL ".join(of_lane.replace("{}", lanes) for lanes in ("walk", "keyed"))
    return f"(SELECT min(waits.seconds) FROM ({both}) AS waits)"


def _bucket(name: str) -> str:
    return "{turn:bucket}" if name == "turn" else name


def _limit_name(names: str) -> str:
    """The limit of one key comes before that of each key."""
    bucket, _, each = names.partition(" else ")
    own = f"(SELECT one.name FROM holdfast_limits one WHERE one.name = {bucket})"
    return f"coalesce({own}, {each or f'{{key limit:{bucket}}}'})"


def _limit_of_key(name: str) -> str:
    bucket = _bucket(name)
    in_force = _limit_name(f"{bucket} else 'key:' || l.type")
    return (
        f"LEFT JOIN holdfast_limits m ON m.name = CASE WHEN {bucket} IS NOT NULL THEN {in_force} END "
        f"LEFT JOIN holdfast_limit_tokens k ON k.bucket = {bucket}"
    )


def _used_up(name: str) -> str:
    used = f"(SELECT coalesce(sum(u.units), 0) FROM holdfast_limit_units u WHERE u.bucket = {_bucket(name)})"
    return f"coalesce(m.concurrency <= {used}, FALSE)"


def _full_key(name: str) -> str:
    return f"({_used_up(name)} OR coalesce({{tokens:m}} + {ROUNDING} * (1 + m.rate) < 1, FALSE))"


SHARED: dict[str, Text] = {
    "limited": limited,
    "blocked": _blocked,
    "tokens": _TOKENS.format,
    "tokens in": "CASE WHEN {0}.rate > 0 THEN {{greatest}}(0, (1 - {{tokens:{0}}}) / {0}.rate) END".format,
    "next tokens": _next_tokens(),
    "limit name": _limit_name,
    "limit of key": _limit_of_key,
    "used up": _used_up,
    "full key": _full_key,
}


BY_DIALECT: dict[str, tuple[Text, Text]] = {
    "key limit": (
        "CASE WHEN substr({0}, 1, 4) = 'key:' THEN split_part({0}, ' ', 1) ELSE {0} END".format,
        "CASE WHEN substr({0}, 1, 4) = 'key:' THEN substr({0}, 1, instr({0} || ' ', ' ') - 1) ELSE {0} END".format,
    ),
    "try lock": (
        f"pg_try_advisory_xact_lock(hashtextextended('{NAMESPACE}:limit:' || {{}}, 0))".format,
        "TRUE",
    ),
}
