"""`holdfast doctor`: checks of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.cli.doctor import indexes
from holdfast.cli.doctor.finding import Finding, fail, ok, warn
from holdfast.cli.output import span_text

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.store.diagnostics import OpenTransaction, PostgresState, TableBloat

VERSION_LEAST = 14
CLOCK_SECONDS = 1.0
TRANSACTION_SECONDS = 300
DEAD_ROWS, DEAD_SHARE = 10_000, 0.2


async def examine(engine: Engine) -> list[Finding]:
    from holdfast.store.diagnostics import indexes_of

    state = await engine.reads.postgres_state()
    return [
        _version(state),
        *_durable(state),
        indexes.check_indexes(indexes_of("postgres"), state.indexes),
        *_vacuum(state),
        _clock(await _server_ahead(engine)),
        _oldest(state.oldest),
    ]


async def _server_ahead(engine: Engine) -> float:
    """Clock difference in seconds; the local time is the middle of the round trip."""
    clock = engine.clock
    asked = clock.now()
    server = await engine.reads.now()
    return (server - (asked + (clock.now() - asked) / 2)).total_seconds()


def _version(state: PostgresState) -> Finding:
    major = state.version // 10_000
    if state.replica:
        return fail("server", "this is a replica, which lags behind", "connect to the primary")
    if major < VERSION_LEAST:
        return fail("server", f"PostgreSQL {major} is too old", f"use {VERSION_LEAST} or newer")
    return ok("server", f"PostgreSQL {major}.{state.version % 10_000}")


def _durable(state: PostgresState) -> Iterator[Finding]:
    from holdfast.store.diagnostics import DURABILITY, is_off

    for name, lost in DURABILITY.items():
        if is_off(state.settings[name]):
            yield fail(name, f"is off: {lost}", f"set {name} = on in the server")
        else:
            yield ok(name, f"is {state.settings[name]}")


def _vacuum(state: PostgresState) -> Iterator[Finding]:
    off = [bloat.table for bloat in state.bloat if bloat.vacuum_off]
    if state.settings["autovacuum"] == "off":
        yield fail("autovacuum", "is off: tables grow and claims slow down", "set autovacuum = on in the server")
    elif off:
        yield fail("autovacuum", f"is off for {', '.join(off)}", "reset autovacuum_enabled on each of them")
    else:
        yield ok("autovacuum", "is on")
    if crowded := [bloat for bloat in state.bloat if _too_many(bloat)]:
        text = ", ".join(f"{bloat.table} has {bloat.dead:,} dead and {bloat.live:,} live" for bloat in crowded)
        yield warn("dead rows", text, "find out what blocks vacuum: an old transaction, or too few autovacuum workers")
    else:
        yield ok("dead rows", f"{sum(bloat.dead for bloat in state.bloat):,} wait for vacuum")


def _too_many(bloat: TableBloat) -> bool:
    return bloat.dead > DEAD_ROWS and bloat.dead > DEAD_SHARE * bloat.live


def _clock(ahead: float) -> Finding:
    if abs(ahead) <= CLOCK_SECONDS:
        return ok("clock", f"the server clock differs from this machine's by {abs(ahead) * 1000:.0f} ms")
    word = "ahead of" if ahead > 0 else "behind"
    return warn(
        "clock",
        f"the server clock is {span_text(abs(ahead))} {word} this machine's: jobs created here run out of order",
        "synchronize both with NTP",
    )


def _oldest(oldest: OpenTransaction | None) -> Finding:
    if oldest is None:
        return ok("transactions", "none is open")
    text = f"the oldest is open for {span_text(oldest.seconds)}: {oldest.who}"
    if oldest.seconds <= TRANSACTION_SECONDS:
        return ok("transactions", text)
    return warn("transactions", f"{text}; it blocks vacuum and delays the event log", "end it")
