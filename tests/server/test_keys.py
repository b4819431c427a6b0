"""API keys in the database: create, find, rotate, revoke; secrets are never stored."""

import sqlite3
from datetime import timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast.clock import MovableClock
from holdfast.engine import Engine, NewWorker
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.model import Liveness
from holdfast.model.key import Key, Kind, NewKey, Scope, digest_of, parse
from tests.server.steps import ADMIN, Served


def secret_of(text: str) -> str:
    found = parse(text.encode())
    assert found is not None
    return found.secret.decode()


async def dump(url: str) -> str:
    """Everything that the database holds, as text."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(urlsplit(url).path)
        try:
            return "\n".join(connection.iterdump())
        finally:
            connection.close()
    server = await asyncpg.connect(url)
    try:
        tables = await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await server.fetch(f"SELECT row_to_json(t)::text FROM {name} t") for (name,) in tables]
        return "\n".join(row[0] for table in rows for row in table)
    finally:
        await server.close()


async def test_a_key_is_found_by_its_id_until_it_expires(engine: Engine, clock: MovableClock) -> None:
    key, text = await engine.keys.create(NewKey(name="shop", tenant="acme", expires_in=60, rate_per_second=5))
    other = await engine.keys.create(NewKey())
    found = await engine.keys.find_live(key.id)
    assert found is not None
    assert (found.key, found.digest) == (key, digest_of(secret_of(text).encode()))
    assert (key.kind, key.tenant, key.name, key.rate_per_second) == (Kind.CLIENT, "acme", "shop", 5)
    assert key.scopes == {Scope.JOBS_CREATE, Scope.JOBS_READ, Scope.JOBS_CANCEL}
    clock.advance(60)
    assert await engine.keys.find_live(key.id) is None
    assert await engine.keys.find_live(other.key.id) is not None
    assert {each.id: each.status(clock.now()) for each in await engine.keys.all()} == {
        key.id: "expired",
        other.key.id: "live",
    }


async def test_the_database_holds_no_secret(engine: Engine, store_url: str) -> None:
    """SEC-2, R003-94: neither a secret nor the beginning of one."""
    texts = [(await engine.keys.create(NewKey(kind=kind))).text for kind in (Kind.CLIENT, Kind.ADMIN)]
    texts.append((await engine.workers.register_with_key(NewWorker(name="w")))[1])
    texts.append((await engine.keys.rotate((await engine.keys.all())[0].id)).text)
    kept = await dump(store_url)
    for text in texts:
        assert digest_of(secret_of(text).encode()) in kept
        assert secret_of(text)[:8] not in kept
        assert text.rpartition("_")[2] not in kept


async def test_a_worker_and_its_key_are_created_in_one_transaction(engine: Engine, clock: MovableClock) -> None:
    """R003-93, R003-96, R003-97."""
    worker, text = await engine.workers.register_with_key(NewWorker(name="encoder-1", kind="remote"), queues=["video"])
    [key] = await engine.keys.all()
    assert (worker.liveness, worker.last_heartbeat_at) == (Liveness.ACTIVE, clock.now())
    assert (key.kind, key.worker_id, key.queues, key.scopes) == (Kind.WORKER, worker.id, ("video",), {Scope.WORK})
    assert parse(text.encode()).id == key.id  # type: ignore[union-attr]


async def test_a_worker_without_its_key_is_not_stored(engine: Engine) -> None:
    """R003-96: both or neither."""
    with pytest.raises(Invalid) as refused:
        await engine.workers.register_with_key(NewWorker(name="encoder-1"), queues=[""])
    assert refused.value.code == "invalid_field"
    assert await engine.workers.all() == []


@pytest.mark.parametrize("field", ["capabilities", "metadata"])
async def test_worker_metadata_is_limited_to_10_kb_each(engine: Engine, field: str) -> None:
    """R003-95."""
    with pytest.raises(Invalid) as refused:
        await engine.workers.register_with_key(NewWorker(**{field: {"x": "y" * 10_240}}))
    assert refused.value.code == f"{field}_too_large"


async def test_a_key_for_an_unknown_worker_is_rejected(engine: Engine) -> None:
    with pytest.raises(NotFound):
        await engine.keys.create(NewKey(kind=Kind.WORKER, worker_id="0b0b0b0b-0b0b-4b0b-8b0b-0b0b0b0b0b0b"))


async def test_a_revoked_key_is_invalid_at_once_and_forever(engine: Engine, clock: MovableClock) -> None:
    """R003-98."""
    key, _ = await engine.keys.create(NewKey())
    other, _ = await engine.keys.create(NewKey())
    first = await engine.keys.revoke(key.id)
    clock.advance(10)
    assert (await engine.keys.revoke(key.id)).revoked_at == first.revoked_at
    assert await engine.keys.find_live(key.id) is None
    assert await engine.keys.find_live(other.id) is not None
    assert (await engine.keys.get(key.id)).status(clock.now()) == "revoked"


@pytest.mark.parametrize("unknown", ["0123456789abcdef", "", "x", "nul\x00", "0" * 5000, "holdfast_client_0"])
async def test_an_unknown_key_is_not_found(engine: Engine, unknown: str) -> None:
    await engine.keys.create(NewKey())
    for ask in (engine.keys.get, engine.keys.revoke, engine.keys.rotate):
        with pytest.raises(NotFound) as refused:
            await ask(unknown)
        assert refused.value.code == "key_not_found"


async def test_all_keys_of_a_worker_are_revoked_and_no_others(engine: Engine, clock: MovableClock) -> None:
    worker, _ = await engine.workers.register_with_key(NewWorker(name="a"))
    await engine.keys.create(NewKey(kind=Kind.WORKER, worker_id=worker.id, name="second"))
    await engine.workers.register_with_key(NewWorker(name="b"))
    await engine.keys.create(NewKey(name="client"))
    assert [key.name for key in await engine.workers.revoke(worker.id)] == ["a", "second"]
    assert await engine.workers.revoke(worker.id) == []
    live = {key.name for key in await engine.keys.all() if key.status(clock.now()) == "live"}
    assert live == {"b", "client"}
    with pytest.raises(NotFound):
        await engine.workers.revoke("nobody")


def rights(key: Key) -> tuple[object, ...]:
    return key.kind, key.tenant, key.name, key.scopes, key.queues, key.worker_id, key.rate_per_second, key.expires_in


async def test_a_rotation_issues_a_key_with_the_same_rights_and_an_overlap(engine: Engine, clock: MovableClock) -> None:
    """SEC-4: rotation with overlap."""
    old, _ = await engine.keys.create(
        NewKey(tenant="acme", name="shop", scopes=["jobs:read"], expires_in=1000, rate_per_second=9)
    )
    other, _ = await engine.keys.create(NewKey())
    new, text = await engine.keys.rotate(old.id, overlap_seconds=60)
    assert new.id != old.id
    assert rights(new) == rights(old)
    assert parse(text.encode()).id == new.id  # type: ignore[union-attr]
    clock.advance(59)
    assert await engine.keys.find_live(old.id) is not None
    clock.advance(1)
    assert await engine.keys.find_live(old.id) is None
    assert await engine.keys.find_live(new.id) is not None
    assert (await engine.keys.get(other.id)).expires_at is None


async def test_a_repeated_rotation_keeps_the_expiry_of_the_old_key(engine: Engine) -> None:
    old, _ = await engine.keys.create(NewKey())
    await engine.keys.rotate(old.id, overlap_seconds=60)
    again, _ = await engine.keys.rotate(old.id, overlap_seconds=60)
    assert again.expires_at is None


async def test_an_overlap_does_not_extend_the_expiry_of_a_key(engine: Engine, clock: MovableClock) -> None:
    old, _ = await engine.keys.create(NewKey(expires_in=10))
    await engine.keys.rotate(old.id, overlap_seconds=60)
    assert (await engine.keys.get(old.id)).expires_at == clock.now() + timedelta(seconds=10)


async def test_a_worker_key_keeps_its_worker_and_queues(engine: Engine) -> None:
    await engine.workers.register_with_key(NewWorker(name="a"), queues=["mail", "video"])
    [old] = await engine.keys.all()
    assert rights((await engine.keys.rotate(old.id)).key) == rights(old)


async def test_an_inactive_key_cannot_be_rotated(engine: Engine, clock: MovableClock) -> None:
    revoked, _ = await engine.keys.create(NewKey())
    await engine.keys.revoke(revoked.id)
    expired, _ = await engine.keys.create(NewKey(expires_in=1))
    clock.advance(1)
    for key in (revoked, expired):
        with pytest.raises(Conflict) as refused:
            await engine.keys.rotate(key.id)
        assert refused.value.code == "key_inactive"
    with pytest.raises(Invalid):
        await engine.keys.rotate(revoked.id, overlap_seconds=-1)
    assert len(await engine.keys.all()) == 2


async def test_the_last_use_of_a_key_is_stored_at_most_once_a_minute(engine: Engine, clock: MovableClock) -> None:
    key, _ = await engine.keys.create(NewKey())
    other, _ = await engine.keys.create(NewKey())
    first = clock.now()
    for seconds, noted in ((0, first), (59, first), (1, first + timedelta(seconds=60))):
        clock.advance(seconds)
        await engine.keys.mark_used([key.id])
        assert (await engine.keys.get(key.id)).used_at == noted
    assert (await engine.keys.get(other.id)).used_at is None


async def test_kinds_of_keys_are_known_after_the_keys_expired(engine: Engine) -> None:
    assert await engine.keys.kinds() == set()
    key, _ = await engine.keys.create(NewKey())
    await engine.keys.revoke(key.id)
    assert await engine.keys.kinds() == {Kind.CLIENT}


async def test_a_key_for_a_user_of_an_extension_over_http(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """The view and the audit name the subject; of an extension that the server has, only what it declares."""
    served.server.extension_scopes = {"images": frozenset({"images:write"})}
    body = {"subject": "alice", "scopes": ["images:write", "crawl:read"]}
    made = await served.http.post("/api/admin/keys", json=body, headers=ADMIN)
    assert made.status_code == 201, made.text
    assert made.json()["key"]["subject"] == "alice"
    assert made.json()["key"]["scopes"] == ["crawl:read", "images:write"]
    assert "extensions that this server does not have: crawl:read" in caplog.text
    [line] = (await served.http.get("/api/admin/audit", headers=ADMIN)).json()["lines"]
    assert line["detail"]["subject"] == "alice"
    refused = await served.http.post("/api/admin/keys", json={"scopes": ["images:wirte"]}, headers=ADMIN)
    assert (refused.status_code, refused.json()["code"]) == (422, "unknown_scope")
    assert "images:write" in refused.json()["detail"]
