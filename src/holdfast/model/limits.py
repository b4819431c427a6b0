"""Limits of jobs: how many may run at once, and how many may start in a time. The declaration of a job type, and names.

A limit bounds the jobs of a type (`type:NAME`), of a queue (`queue:NAME`), of a tenant (`tenant:NAME`), of each key of
a type (`key:TYPE`), of one key (`key:TYPE KEY`), or the jobs that name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import InvalidField
from holdfast.model.names import check_name, quoted

KEY_MAX = 255
UNITS_MAX = 1_000_000
RATE_MIN, RATE_MAX = 1e-7, 1_000_000.0  # a second; the least is one in four months
NAMES_MAX = 20  # named limits of a job
WEIGHT_MAX = 1000
TENANT = "tenant:"
SCOPES = ("type", "queue", "tenant", "key")
_PER = {
    "s": 1,
    "second": 1,
    "sec": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86_400,
    "day": 86_400,
}
_RATE = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*/\s*([1-9]\d{0,8})?\s*([a-z]+)\s*")


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """At most `concurrency` units at once, and `rate` units a second; up to `burst` units are saved up."""

    concurrency: int | None = None
    rate: float | None = None
    burst: float | None = None

    @classmethod
    def of(cls, concurrency: Any = None, rate: Any = None, burst: Any = None, suffix: str = "") -> Limit | None:
        """From what a user gives: a rate is "10/s", "600/min" or a number a second. None if nothing is given."""
        if concurrency is None and rate is None:
            if burst is not None:
                raise InvalidField(f"burst{suffix} needs a rate{suffix}", field=f"burst{suffix}")
            return None
        if concurrency is not None:
            _check_whole(concurrency, f"concurrency{suffix}", least=0)
        number = None if rate is None else _rate(rate, f"rate{suffix}")
        if burst is None:
            burst = None if number is None else _usual_burst(number)
        elif number is None:
            raise InvalidField(f"burst{suffix} needs a rate{suffix}", field=f"burst{suffix}")
        elif type(burst) not in (int, float) or not 1 <= burst <= UNITS_MAX:
            raise InvalidField(f"burst{suffix} must be 1 to {UNITS_MAX}, got {quoted(burst)}", field=f"burst{suffix}")
        return cls(concurrency, number, None if burst is None else float(burst))

    def but(self, **parts: Any) -> Limit | None:
        """With other parts, as a user gives them; None lifts a part. A default burst follows the rate."""
        chosen = self.rate is not None and self.burst != _usual_burst(self.rate)
        kept = {"concurrency": self.concurrency, "rate": self.rate, "burst": self.burst if chosen else None}
        merged = {**kept, **parts}
        if merged["rate"] is None and "burst" not in parts:
            merged["burst"] = None
        return Limit.of(**merged)

    @property
    def text(self) -> str:
        """For people: `4 at once, 10/s (burst 20)`."""
        parts = [] if self.concurrency is None else [f"{self.concurrency} at once"]
        if self.rate is not None and self.burst is not None:
            parts.append(f"{rate_text(self.rate)} (burst {self.burst:g})")
        return ", ".join(parts)


class JobLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `@app.job` declares. `key_from` and `fair_from`: the field of the payload that is the key, or "" if a
    function of the app computes it. `units`: what a job takes of the named limits."""

    of_type: Limit | None = None
    of_key: Limit | None = None
    key_from: str | None = None
    fair_from: str | None = None
    units: dict[str, int] = {}

    @property
    def keyed(self) -> bool:
        return self.key_from is not None or self.fair_from is not None

    def check(self, job_type: str) -> None:
        check_units(self.units)
        if self.key_from is not None:
            check_keyed_type(job_type)
        if self.of_key is not None and self.key_from is None:
            raise InvalidField("a limit for each key needs limit_key, the key of a job", field="limit_key")


KeyFunction = Callable[[dict[str, Any]], Any]


class KeyFunctions(NamedTuple):
    """Functions of the app that compute the keys of a job from its payload."""

    limit: KeyFunction | None
    fair: KeyFunction | None


NO_KEY_FUNCTIONS = KeyFunctions(None, None)


class JobKeys(NamedTuple):
    limit: str | None
    fair: str | None


def keys_of(
    job_type: str, declared: JobLimits, functions: KeyFunctions, given: JobKeys, payload: dict[str, Any]
) -> JobKeys:
    """The keys of a job: those that the request gives, or those of its payload. A missing field is no key."""
    return JobKeys(
        given.limit or _key(job_type, "limit_key", declared.key_from, functions.limit, payload),
        given.fair or _key(job_type, "fairness_key", declared.fair_from, functions.fair, payload),
    )


def _key(
    job_type: str, field: str, key_from: str | None, function: KeyFunction | None, payload: dict[str, Any]
) -> str | None:
    if key_from is None:
        return None
    if key_from:
        key = payload.get(key_from)
    elif function is not None:
        key = _computed(job_type, field, function, payload)
    else:
        raise InvalidField(
            f"{field} of job type {job_type!r} is computed by a function of its app; give {field} with the job, or "
            "create it in a process that has the app",
            field=field,
        )
    if key is None:
        return None
    if type(key) not in (str, int):
        raise InvalidField(
            f"{field} of job type {job_type!r} must be text or a whole number, got {quoted(key)}", field=field
        )
    return check_key(str(key), field)


def _computed(job_type: str, field: str, function: KeyFunction, payload: dict[str, Any]) -> Any:
    try:
        return function(payload)
    except Exception as error:  # code of the app, on what a client sent
        raise InvalidField(
            f"{field} of job type {job_type!r} cannot be computed from this payload: {type(error).__name__}: {error}",
            field=field,
        ) from error


def check_keyed_type(job_type: str) -> None:
    """`key:TYPE KEY` names the limit of a key."""
    if " " in job_type:
        raise InvalidField(
            f"a job type with a limit key must not have a space in its name, got {quoted(job_type)}", field="limit_key"
        )


def check_key(key: Any, field: str) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_MAX or not key.isprintable() or key != key.strip():
        raise InvalidField(
            f"{field} must be text of 1 to {KEY_MAX} printable characters without spaces at either end, "
            f"got {quoted(key)}",
            field=field,
        )
    return key


def units_of(given: Any) -> Any:
    """Names become one unit each. Anything else is left as it is, and rejected where it is checked."""
    is_list = isinstance(given, list | tuple | set | frozenset) and all(isinstance(name, str) for name in given)
    return dict.fromkeys(given, 1) if is_list else given


def check_units(units: Any) -> None:
    if not isinstance(units, dict):
        raise InvalidField(
            f'limits must be a list of names, or map names to units ({{"gpu": 3}}), got {quoted(units)}', field="limits"
        )
    if len(units) > NAMES_MAX:
        raise InvalidField(f"a job has at most {NAMES_MAX} named limits, got {len(units)}", field="limits")
    for name, taken in units.items():
        if ":" in check_name(name, "limits", "each name in "):
            raise InvalidField(f"a named limit must not contain a colon, got {quoted(name)}", field="limits")
        _check_whole(taken, "limits", least=1, what=f"units of limit {name!r}")


def check_limit_name(name: Any) -> str:
    """`type:NAME`, `queue:NAME`, `tenant:NAME`, `key:TYPE`, `key:TYPE KEY`, or a name without a colon."""
    if not isinstance(name, str) or not 1 <= len(name) <= 2 * KEY_MAX:
        raise InvalidField(f"a limit has a name, got {quoted(name)}", field="name")
    scope, colon, about = name.partition(":")
    if not colon:
        return check_name(name, "name")
    if scope not in SCOPES:
        known = "type:NAME, queue:NAME, tenant:NAME, key:TYPE, 'key:TYPE KEY'"
        raise InvalidField(f"a limit is {known}, or a name without a colon; got {quoted(name)}", field="name")
    job_type, space, key = about.partition(" ")
    check_name(job_type if scope == "key" else about, "name")
    if scope == "key" and space:
        check_key(key, "name")
    return name


def check_weight(name: str, weight: Any) -> None:
    """The share of claims that a tenant gets beside other tenants."""
    if not name.startswith(TENANT):
        raise InvalidField(
            f"only a tenant has a weight: give it to {TENANT}NAME, got {quoted(name)}",
            field="weight",
        )
    if type(weight) is not int or not 1 <= weight <= WEIGHT_MAX:
        raise InvalidField(
            f"weight must be a whole number from 1 to {WEIGHT_MAX}, got {quoted(weight)}", field="weight"
        )


def is_for_each_key(name: str) -> bool:
    """`key:TYPE`: each key has its own units, so none are counted for the limit itself."""
    return name.startswith("key:") and " " not in name


def key_bucket(job_type: str, key: str) -> str:
    """Also a trigger of the database makes it."""
    return f"key:{job_type} {key}"


def rate_text(rate: float) -> str:
    for per, seconds in (("s", 1), ("min", 60), ("h", 3600), ("d", 86_400)):
        if round(rate * seconds, 6) >= 1:
            return f"{round(rate * seconds, 6):g}/{per}"
    return f"{rate:g}/s"


def _usual_burst(rate: float) -> float:
    """What may start at once after a pause, if nothing else is given: the jobs of one second."""
    return max(1.0, rate)


def _rate(rate: Any, field: str) -> float:
    number: float | None = rate if type(rate) in (int, float) else None
    if isinstance(rate, str) and (found := _RATE.fullmatch(rate)) and found[3] in _PER:
        number = float(found[1]) / (int(found[2] or 1) * _PER[found[3]])
    if number is None or not (number == 0 or RATE_MIN <= number <= RATE_MAX):
        raise InvalidField(
            f'{field} must be a number a second up to {RATE_MAX:,.0f}, or text such as "10/s", "600/min" or "1/5s", '
            f"got {quoted(rate)}",
            field=field,
        )
    return float(number)


def _check_whole(number: Any, field: str, *, least: int, what: str = "") -> None:
    if type(number) is not int or not least <= number <= UNITS_MAX:
        raise InvalidField(
            f"{what or field} must be a whole number from {least} to {UNITS_MAX}, got {quoted(number)}", field=field
        )
