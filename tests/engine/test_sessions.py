"""Browser sessions in the database: begun, found until they are over, ended, noted, deleted."""

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.model.key import digest_of
from holdfast.store import Tx
from holdfast.store.queries import Query

ALL = Query("all_sessions", "SELECT digest, key_id, used_at FROM holdfast_sessions ORDER BY expires_at")


def digest(token: str) -> str:
    return digest_of(token.encode())


async def stored(engine: Engine) -> list[tuple[object, ...]]:
    async def work(tx: Tx) -> list[tuple[object, ...]]:
        return [(row["digest"], row["key_id"], row["used_at"]) for row in await tx.all(ALL)]

    return await engine.store.read(work)


async def test_a_session_is_found_by_its_token_until_it_expires(engine: Engine, clock: MovableClock) -> None:
    one, other = await engine.sessions.begin("key 1", 60), await engine.sessions.begin("key 2", 120)
    assert one.expires_at == clock.now() + timedelta(seconds=60)
    found = await engine.sessions.find_live(digest(one.token))
    assert found == ("key 1", one.expires_at)
    assert await engine.sessions.find_live(digest("0" * 64)) is None
    clock.advance(59)
    assert await engine.sessions.find_live(digest(one.token)) is not None
    clock.advance(1)
    assert await engine.sessions.find_live(digest(one.token)) is None
    assert (await engine.sessions.find_live(digest(other.token)) or ("",))[0] == "key 2"


async def test_the_database_holds_no_token(engine: Engine) -> None:
    opened = await engine.sessions.begin("k", 60)
    assert await stored(engine) == [(digest(opened.token), "k", None)]


async def test_ending_a_session_ends_no_other(engine: Engine) -> None:
    one, other = await engine.sessions.begin("k", 60), await engine.sessions.begin("k", 61)
    assert await engine.sessions.end(digest(one.token))
    assert not await engine.sessions.end(digest(one.token))
    assert [row[0] for row in await stored(engine)] == [digest(other.token)]


async def test_the_use_of_a_session_is_recorded_once_a_minute(engine: Engine, clock: MovableClock) -> None:
    one, other = await engine.sessions.begin("k", 600), await engine.sessions.begin("k", 601)
    first = clock.now()
    await engine.sessions.mark_used([digest(one.token)])
    assert [row[2] for row in await stored(engine)] == [first, None]
    for advanced, noted in ((59, first), (1, first + timedelta(seconds=60))):
        clock.advance(advanced)
        await engine.sessions.mark_used([digest(one.token)])
        assert [row[2] for row in await stored(engine)] == [noted, None]
    assert other.token not in str(await stored(engine))


async def test_expired_sessions_are_deleted_oldest_first(
    engine: Engine, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [await engine.sessions.begin("k", seconds) for seconds in (30, 10, 20, 40)]
    clock.advance(30)
    monkeypatch.setattr(engine.ctx, "limits", replace(engine.ctx.limits, sweep_batch=2))
    assert await engine.sessions.prune() == 2
    assert [row[0] for row in await stored(engine)] == [digest(opened[0].token), digest(opened[3].token)]
    assert await engine.sessions.prune() == 1
    assert await engine.sessions.prune() == 0
    assert [row[0] for row in await stored(engine)] == [digest(opened[3].token)]
