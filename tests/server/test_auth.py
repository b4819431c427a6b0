"""Who is let in, as whom, and for how long after their key was taken back."""

import asyncio
from typing import Any

import pytest

from holdfast.engine import Engine, NewWorker
from holdfast.engine.admin.keys import LiveKey
from holdfast.errors import Forbidden, HoldfastError, Malformed, StoreUnavailable, Unauthorized
from holdfast.model.key import SCOPES, Kind, NewKey, Scope, text_of
from holdfast.server.api import streams
from holdfast.server.auth import ttl_cache
from holdfast.server.auth.authenticator import ADMIN as ADMIN_CALLER
from holdfast.server.auth.authenticator import ANONYMOUS, LOCAL_CLIENT, Authenticator, Caller
from holdfast.server.auth.ttl_cache import TtlCache
from tests.clocks import WholeClock
from tests.server.steps import ADMIN, SECRET, Served, bearer, serving

LOCAL = {b"host": b"127.0.0.1:8080"}


@pytest.fixture
def clock() -> WholeClock:
    return WholeClock()


@pytest.fixture
def auth(engine: Engine, clock: WholeClock) -> Authenticator:
    return Authenticator(engine, clock, admin_secret=SECRET, allow_local=True)


def with_key(text: str) -> dict[bytes, bytes]:
    return {**LOCAL, b"authorization": f"Bearer {text}".encode()}


def with_secret(secret: str) -> dict[bytes, bytes]:
    return {**LOCAL, b"x-admin-secret": secret.encode()}


async def knock(
    auth: Authenticator, headers: dict[bytes, bytes], scope: Scope | None = Scope.JOBS_READ
) -> Caller | str:
    """Who it is, or the code of the refusal."""
    try:
        return await auth.authenticate(headers, "192.0.2.1", scope)
    except HoldfastError as refused:
        return refused.code


# -- this machine, before there are keys --------------------------------------------------------------------------


async def test_loopback_needs_no_key_until_the_first_client_key(
    auth: Authenticator, engine: Engine, clock: WholeClock
) -> None:
    """SEC-6: workers' and operators' keys do not count."""
    await engine.workers.register_with_key(NewWorker(name="w"))
    await engine.keys.create(NewKey(kind=Kind.ADMIN))
    assert await knock(auth, LOCAL) is LOCAL_CLIENT
    assert await knock(auth, LOCAL, Scope.ADMIN_READ) == "unauthorized"
    assert await knock(auth, LOCAL, Scope.WORK) == "unauthorized"
    key, _ = await engine.keys.create(NewKey())
    clock.advance(ttl_cache.TTL_SECONDS)
    assert await knock(auth, LOCAL) == "unauthorized"
    await engine.keys.revoke(key.id)
    clock.advance(60)
    assert await knock(auth, LOCAL) == "unauthorized", "taking a key back must open no door"


async def test_other_addresses_always_need_a_key(engine: Engine, clock: WholeClock) -> None:
    auth = Authenticator(engine, clock, admin_secret=SECRET, allow_local=False)
    assert await knock(auth, LOCAL) == "unauthorized"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "[::1]", "127.9.9.9:80"]
)
async def test_loopback_host_names_are_accepted(auth: Authenticator, host: str) -> None:
    assert await knock(auth, {b"host": host.encode()}) is LOCAL_CLIENT


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0"),
        *("192.168.0.1", "127.0.0.1:8080:80", "127.0.0.1@evil.example", "[::1", "::1]:80", "[::]", "2130706433"),
        *("localhost\x00", "lòcalhost", "127.0.0.1 evil.example", "127.0.0.1:evil"),
    ],
)
async def test_other_host_names_are_rejected(auth: Authenticator, host: str) -> None:
    """SEC-6: a page whose name was made to lead to this machine (DNS rebinding) gets nothing."""
    with pytest.raises(Malformed) as refused:
        await auth.authenticate({b"host": host.encode()}, "127.0.0.1", Scope.JOBS_READ)
    assert refused.value.code == "wrong_host"


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8080", "http://localhost:3000", "https://[::1]", None])
async def test_a_loopback_origin_is_accepted(auth: Authenticator, origin: str | None) -> None:
    assert await knock(auth, LOCAL if origin is None else {**LOCAL, b"origin": origin.encode()}) is LOCAL_CLIENT


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://localhost.evil.example", "http://127.0.0.1@evil.example", "\xff"],
)
async def test_another_origin_is_rejected(auth: Authenticator, engine: Engine, origin: str) -> None:
    """SEC-6: a browser lets it send a body without a type to this machine, and does not ask us first."""
    foreign = {b"origin": origin.encode("latin-1")}
    assert await knock(auth, {**LOCAL, **foreign}, Scope.JOBS_CREATE) == "cross_origin_forbidden"
    _, text = await engine.keys.create(NewKey(kind=Kind.ADMIN))
    assert isinstance(await knock(auth, {**with_key(text), **foreign}, Scope.ADMIN_READ), Caller), "who has a key may"


async def test_a_request_with_a_key_may_use_any_host_name(auth: Authenticator, engine: Engine) -> None:
    _, text = await engine.keys.create(NewKey())
    assert isinstance(await knock(auth, {**with_key(text), b"host": b"jobs.example"}), Caller)


async def test_an_invalid_key_is_rejected_even_where_none_is_required(auth: Authenticator) -> None:
    """A mistake shows at once, not when the first key is made."""
    assert await knock(auth, with_key("typo")) == "unauthorized"


async def test_public_routes_need_no_key(auth: Authenticator) -> None:
    assert await knock(auth, {}, None) is ANONYMOUS
    assert await knock(auth, with_key("typo"), None) is ANONYMOUS


# -- keys ---------------------------------------------------------------------------------------------------------


async def test_the_caller_is_determined_by_the_key(auth: Authenticator, engine: Engine) -> None:
    """SEC-9: the tenant is the key's."""
    key, text = await engine.keys.create(NewKey(tenant="acme"))
    assert await knock(auth, with_key(text)) == Caller(Kind.CLIENT, key.id, "acme", frozenset(SCOPES[Kind.CLIENT]))
    worker, text = await engine.workers.register_with_key(NewWorker(name="w"), queues=["mail"])
    caller = await knock(auth, with_key(text), Scope.WORK)
    assert isinstance(caller, Caller)
    assert (caller.kind, caller.worker, caller.queues) == (Kind.WORKER, worker.id, ("mail",))


async def test_each_scope_allows_only_its_own_routes(auth: Authenticator, engine: Engine) -> None:
    """SEC-5: deny by default; the refusal names the scope."""
    worker, _ = await engine.workers.register_with_key(NewWorker(name="w"))
    for kind, scopes in SCOPES.items():
        for granted in scopes:
            owner = worker.id if kind is Kind.WORKER else None
            _, text = await engine.keys.create(NewKey(kind=kind, scopes=[granted], worker_id=owner))
            for wanted in Scope:
                if wanted is granted:
                    assert isinstance(await knock(auth, with_key(text), wanted), Caller)
                    continue
                with pytest.raises(Forbidden, match=wanted):
                    await auth.authenticate(with_key(text), "192.0.2.1", wanted)


async def test_extension_scopes_work_like_those_of_the_core(auth: Authenticator, engine: Engine) -> None:
    """A key opens those it has; the admin secret all of them, and so does this machine while there are no keys."""
    assert await knock(auth, LOCAL, "images:write") is LOCAL_CLIENT
    assert await knock(auth, with_secret(SECRET), "images:write") is ADMIN_CALLER
    for kind in (Kind.CLIENT, Kind.ADMIN):
        key, text = await engine.keys.create(NewKey(kind=kind, scopes=["images:write"], subject="alice"))
        caller = await knock(auth, with_key(text), "images:write")
        assert isinstance(caller, Caller)
        assert (caller.name, caller.subject) == (key.id, "alice")
        assert await knock(auth, with_key(text), "images:read") == "forbidden"
        assert await knock(auth, with_key(text), Scope.JOBS_READ) == "forbidden"
    key, text = await engine.keys.create(NewKey())
    caller = await knock(auth, with_key(text))
    assert isinstance(caller, Caller)
    assert caller.subject == key.id, "without a subject it is the key's id"
    assert await knock(auth, with_key(text), "images:write") == "forbidden"


async def test_the_bearer_scheme_is_case_insensitive(auth: Authenticator, engine: Engine) -> None:
    _, text = await engine.keys.create(NewKey())
    for shown in (f"bearer {text}", f"BEARER {text}", f"Bearer  {text} "):
        assert isinstance(await knock(auth, {b"authorization": shown.encode()}), Caller)
    for shown in (text, f"Basic {text}", f"Bearer{text}", "Bearer", "Bearer ", ""):
        assert await knock(auth, {b"authorization": shown.encode()}) == "unauthorized"


async def test_every_authentication_error_is_identical(served: Served, clock: WholeClock) -> None:
    """SEC-7: who may not come in learns nothing about who may."""
    engine = served.engine
    live, text = await engine.keys.create(NewKey())
    revoked, revoked_text = await engine.keys.create(NewKey())
    await engine.keys.revoke(revoked.id)
    secret = text.split("_")[3]
    shown: list[dict[str, str]] = [
        {"Authorization": ""},
        bearer("nonsense"),
        bearer(text[:-1] + "x"),
        bearer(text_of(Kind.CLIENT, "0" * 16, secret)),
        bearer(text_of(Kind.CLIENT, live.id, "0" * 64)),
        bearer(text_of(Kind.ADMIN, live.id, secret)),
        bearer(revoked_text),
        {"X-Admin-Secret": "wrong"},
        {"X-Admin-Secret": SECRET, **bearer(text)},
        {"X-Admin-Secret": "wrong", **bearer(text)},
    ]
    answers = [await served.http.get("/jobs", headers=headers) for headers in shown]
    for answer in answers:
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        assert secret not in answer.text
    assert len({(a.text.replace(a.json()["requestId"], ""), str(a.headers.keys())) for a in answers}) == 1


# -- the admin secret ---------------------------------------------------------------------------------------------


async def test_the_admin_secret_allows_all_operator_routes(auth: Authenticator) -> None:
    """R003-92."""
    for scope in SCOPES[Kind.ADMIN]:
        caller = await knock(auth, with_secret(SECRET), scope)
        assert isinstance(caller, Caller)
        assert caller.name == "admin secret"
    assert await knock(auth, with_secret(SECRET), Scope.JOBS_READ) == "forbidden"
    assert await knock(auth, with_secret(SECRET[:-1]), Scope.ADMIN_READ) == "unauthorized"
    assert await knock(auth, with_secret(""), Scope.ADMIN_READ) == "unauthorized"


async def test_without_an_admin_secret_none_is_accepted(engine: Engine, clock: WholeClock) -> None:
    auth = Authenticator(engine, clock, admin_secret="", allow_local=True)
    for guess in ("", "0" * 64, "\x00" * 32):
        assert await knock(auth, with_secret(guess), Scope.ADMIN_READ) == "unauthorized"


async def test_conflicting_credentials_are_rejected(auth: Authenticator, engine: Engine) -> None:
    _, client = await engine.keys.create(NewKey())
    _, admin = await engine.keys.create(NewKey(kind=Kind.ADMIN))
    assert await knock(auth, {**with_key(client), **with_secret(SECRET)}, Scope.ADMIN_READ) == "unauthorized"
    assert await knock(auth, {**with_key(admin), **with_secret("wrong")}, Scope.ADMIN_READ) == "unauthorized"
    assert await knock(auth, {**with_key("typo"), **with_secret(SECRET)}, Scope.ADMIN_READ) == "unauthorized"
    assert isinstance(await knock(auth, {**with_key(admin), **with_secret(SECRET)}, Scope.ADMIN_KEYS), Caller)


# -- how long a key is believed -----------------------------------------------------------------------------------


async def test_a_revoked_key_is_rejected_by_every_server_within_5_s(store_url: str) -> None:
    """SEC-4: revoke, on two servers, with the real clock; and what goes on for long hears of it too."""
    assert ttl_cache.TTL_SECONDS + streams.CHECK_SECONDS <= 5
    async with serving(store_url) as one, serving(store_url) as other:
        key, text = await one.engine.keys.create(NewKey())
        callers = [await each.server.auth.authenticate(with_key(text), "", Scope.JOBS_READ) for each in (one, other)]
        await one.engine.keys.revoke(key.id)
        async with asyncio.timeout(60):
            for each, caller in zip((one, other), callers, strict=True):
                while (await each.http.get("/jobs", headers=bearer(text))).status_code != 401:
                    await turn()
                with pytest.raises(Unauthorized):
                    await each.server.auth.check_still_valid(caller)


async def test_an_expired_key_is_rejected(auth: Authenticator, engine: Engine, clock: WholeClock) -> None:
    """SEC-4: expiry, by the database's clock."""
    _, text = await engine.keys.create(NewKey(expires_in=60))
    caller = await knock(auth, with_key(text))
    assert isinstance(caller, Caller)
    clock.advance(58)
    await auth.check_still_valid(caller)
    clock.advance(2)
    assert await knock(auth, with_key(text)) == "unauthorized"
    with pytest.raises(Unauthorized):
        await auth.check_still_valid(caller)


async def test_both_keys_are_valid_during_a_rotation(auth: Authenticator, engine: Engine, clock: WholeClock) -> None:
    """SEC-4: rotation with overlap."""
    old, old_text = await engine.keys.create(NewKey(tenant="acme"))
    _, new_text = await engine.keys.rotate(old.id, overlap_seconds=30)
    for text in (old_text, new_text):
        caller = await knock(auth, with_key(text))
        assert isinstance(caller, Caller)
        assert caller.tenant == "acme"
    clock.advance(30)
    assert await knock(auth, with_key(old_text)) == "unauthorized"
    assert isinstance(await knock(auth, with_key(new_text)), Caller)


async def test_a_caller_without_a_key_is_rejected_after_the_first_key_was_created(
    auth: Authenticator, engine: Engine, clock: WholeClock
) -> None:
    await auth.check_still_valid(LOCAL_CLIENT)
    await auth.check_still_valid(await auth.authenticate(with_secret(SECRET), "", Scope.ADMIN_READ))
    await engine.keys.create(NewKey())
    clock.advance(ttl_cache.TTL_SECONDS)
    with pytest.raises(Unauthorized):
        await auth.check_still_valid(LOCAL_CLIENT)


async def test_the_last_use_of_a_key_is_stored_in_the_background(auth: Authenticator, engine: Engine) -> None:
    key, text = await engine.keys.create(NewKey())
    await knock(auth, with_key(text))
    await knock(auth, with_key(text_of(Kind.CLIENT, "0" * 16, "0" * 64)))
    assert (await engine.keys.get(key.id)).used_at is None
    await auth.note_used()
    assert (await engine.keys.get(key.id)).used_at is not None


async def test_a_database_error_is_not_reported_as_an_invalid_key(auth: Authenticator, engine: Engine) -> None:
    _, text = await engine.keys.create(NewKey())
    await engine.close()
    with pytest.raises(HoldfastError) as refused:
        await auth.authenticate(with_key(text), "", Scope.JOBS_READ)
    assert refused.value.code == "store_closed"
    await auth.note_used()


# -- asking the database ------------------------------------------------------------------------------------------


class Database:
    """Answers when told to, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = asyncio.Event()
        self.fails = False

    async def ask(self, name: str) -> str | None:
        self.asked.append(name)
        await self.let_go.wait()
        if self.fails:
            raise StoreUnavailable("away")
        return None if name.startswith("stranger") else f"{name} {len(self.asked)}"


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_concurrent_requests_with_one_key_cause_one_lookup(clock: WholeClock) -> None:
    database = Database()
    known = TtlCache(database.ask, clock)
    asking = [asyncio.create_task(known.get("key")) for _ in range(100)]
    await turn()
    asking.pop().cancel()  # one that hangs up takes nobody else with it
    database.let_go.set()
    assert await asyncio.gather(*asking) == ["key 1"] * 99
    assert database.asked == ["key"]


async def test_a_cached_key_is_refreshed_in_the_background(clock: WholeClock) -> None:
    database = Database()
    database.let_go.set()
    known = TtlCache(database.ask, clock)
    assert await known.get("key") == "key 1"
    database.let_go.clear()
    clock.advance(ttl_cache.REFRESH_SECONDS)
    assert [await known.get("key") for _ in range(3)] == ["key 1"] * 3
    await turn()
    assert len(database.asked) == 2
    database.let_go.set()
    await turn()
    assert await known.get("key") == "key 2"


async def test_an_expired_cache_entry_is_not_used(clock: WholeClock) -> None:
    """SEC-4: not even when the database is away."""
    database = Database()
    database.let_go.set()
    known = TtlCache(database.ask, clock)
    await known.get("key")
    database.fails = True
    clock.advance(ttl_cache.TTL_SECONDS)
    with pytest.raises(StoreUnavailable):
        await known.get("key")
    database.fails = False
    assert await known.get("key") == "key 3"


async def test_requests_with_unknown_keys_do_not_exhaust_the_connections(clock: WholeClock) -> None:
    """SEC-7: names that somebody invents are looked up two at a time; a known one goes past them."""
    database = Database()
    database.let_go.set()
    known = TtlCache(database.ask, clock)
    await known.get("key")
    database.let_go.clear()
    clock.advance(ttl_cache.TTL_SECONDS)
    strangers = [asyncio.create_task(known.get(f"stranger {n}")) for n in range(50)]
    await turn()
    friend = asyncio.create_task(known.get("key"))
    await turn()
    assert database.asked == ["key", "stranger 0", "stranger 1", "key"]
    database.let_go.set()
    assert (await friend, set(await asyncio.gather(*strangers))) == ("key 4", {None})


async def test_the_key_cache_is_bounded(clock: WholeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ttl_cache, "ENTRIES_MAX", 10)
    database = Database()
    database.let_go.set()
    known: TtlCache[Any] = TtlCache(database.ask, clock)
    for number in range(50):
        await known.get(f"stranger {number}")
    assert len(known._entries) == 10
    assert not known._loading


async def test_unknown_keys_are_cached(auth: Authenticator, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = engine.keys.find_live

    async def counted(key_id: str) -> LiveKey | None:
        asked.append(key_id)
        return await find(key_id)

    monkeypatch.setattr(auth._keys, "_load", counted)
    for _ in range(10):
        await knock(auth, with_key(text_of(Kind.CLIENT, "0" * 16, "0" * 64)))
        await knock(auth, with_key("holdfast_client_0000000000000000_" + "0" * 64 + "_00000000"))
    assert asked == ["0" * 16], "a wrong checksum never gets that far"


async def test_the_register_route_accepts_the_admin_secret(served: Served) -> None:
    """R003-91, R003-92, R003-97."""
    refused = await served.http.post("/api/worker/register", json={})
    assert refused.status_code == 401
    answer = await served.http.post("/api/worker/register", json={"name": "w"}, headers=ADMIN)
    assert answer.status_code == 201
    caller = await served.server.auth.authenticate(with_key(answer.json()["apiKey"]), "", Scope.WORK)
    assert caller.worker == answer.json()["workerId"]
