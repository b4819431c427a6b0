"""Every route against every kind of caller (SEC-5), generated from the route table."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from uuid import uuid4
from zlib import crc32

import httpx2
import pytest

from holdfast.engine import Engine
from holdfast.model import NewJob
from holdfast.model.key import SCOPES, Kind, NewKey, Scope, text_of
from holdfast.server.app import ROUTES
from holdfast.server.auth import rate_limit
from holdfast.server.http.route import Route
from holdfast.server.openapi.document import statuses
from tests.extension import toy
from tests.server.steps import ADMIN, SECRET, Served, bearer, serving

EVERY = (*ROUTES, *toy.ext.routes)  # those of an extension are found as those of the core are
MOUNTED = [replace(EVERY[-1], method="GET", path=f"{one.path}/x", scope=one.scope) for one in toy.ext.mounts]
GUARDED = [route for route in (*EVERY, *MOUNTED) if route.scope is not None]
OPEN = [route for route in (*EVERY, *MOUNTED) if route.scope is None]
EXTENSION = sorted({route.scope for route in (*toy.ext.routes, *MOUNTED) if route.scope is not None})
KINDS = {scope: kind for kind, scopes in SCOPES.items() for scope in scopes} | dict.fromkeys(EXTENSION, Kind.CLIENT)

Headers = dict[str, str]
Row = Callable[[Engine], Awaitable[Headers]]


@pytest.fixture
async def closed(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server that has a client's key, so that nobody comes in without one; and nobody is slowed down."""
    monkeypatch.setattr(rate_limit, "FAILURES_MAX", 10**9)
    async with serving(fresh_sqlite_url, app=toy.app) as served:
        assert served.server.routes == EVERY
        await served.engine.keys.create(NewKey())
        yield served


async def ask(served: Served, route: Route, headers: Headers) -> httpx2.Response:
    """With ids of nothing, and a body that says nothing; of a stream, only its beginning."""
    path = re.sub(r"\{\w+\}", str(uuid4()), route.path)
    body = {"json": {}} if route.body is not None else {}
    async with served.http.stream(route.method, path, headers=headers, **body) as answer:
        if answer.headers.get("content-type") != "text/event-stream":
            await answer.aread()
        return answer


# -- who may, one scope at a time -------------------------------------------------------------------------------


async def key_with(engine: Engine, scope: str) -> Headers:
    worker = (await engine.workers.register(name="w")).id if scope is Scope.WORK else None
    _, text = await engine.keys.create(NewKey(kind=KINDS[scope], scopes=[scope], worker_id=worker))
    return bearer(text)


@pytest.mark.parametrize("scope", [*Scope, *EXTENSION])
async def test_a_key_allows_only_the_routes_of_its_scope(closed: Served, scope: str) -> None:
    """SEC-5: deny by default; also the wrong kind of key."""
    headers, wrong = await key_with(closed.engine, scope), {}
    for route in GUARDED:
        answer = await ask(closed, route, headers)
        opened = answer.status_code not in (401, 403)
        expected = {403} if route.scope != scope else {*route.answers, *statuses(route)} - {401, 403, 503}
        if opened is not (route.scope == scope) or answer.status_code not in expected:
            wrong[route.name] = answer.status_code
    assert wrong == {}


async def test_the_admin_secret_allows_only_operator_routes(closed: Served) -> None:
    for route in GUARDED:
        status = (await ask(closed, route, ADMIN)).status_code
        operators = route.scope in (*SCOPES[Kind.ADMIN], *EXTENSION)
        assert (status not in (401, 403)) is operators, (route.name, status)


# -- who may not ------------------------------------------------------------------------------------------------


async def nobody(engine: Engine) -> Headers:
    return {}


async def gibberish(engine: Engine) -> Headers:
    return bearer("gibberish")


async def another_scheme(engine: Engine) -> Headers:
    _, text = await engine.keys.create(NewKey())
    return {"Authorization": f"Basic {text}"}


async def never_issued(engine: Engine) -> Headers:
    return bearer(text_of(Kind.CLIENT, "0" * 16, "0" * 64))


async def one_digit_wrong(engine: Engine) -> Headers:
    """With a checksum that fits."""
    key, text = await engine.keys.create(NewKey())
    secret = text.split("_")[3]
    return bearer(text_of(Kind.CLIENT, key.id, ("0" if secret[0] != "0" else "1") + secret[1:]))


async def checksum_wrong(engine: Engine) -> Headers:
    _, text = await engine.keys.create(NewKey())
    shown, _, sum_ = text.rpartition("_")
    return bearer(f"{shown}_{int(sum_, 16) ^ 1:08x}")


async def kind_forged(engine: Engine) -> Headers:
    """A client's key that calls itself an admin's."""
    _, text = await engine.keys.create(NewKey())
    shown = text.rpartition("_")[0].replace("_client_", "_admin_")
    return bearer(f"{shown}_{crc32(shown.encode()):08x}")


async def expired(engine: Engine) -> Headers:
    key, text = await engine.keys.create(NewKey(kind=Kind.ADMIN, scopes=SCOPES[Kind.ADMIN], expires_in=0.01))
    for _ in range(1000):
        if await engine.keys.find_live(key.id) is None:
            break
        await asyncio.sleep(0.01)
    return bearer(text)


async def revoked(engine: Engine) -> Headers:
    key, text = await engine.keys.create(NewKey(kind=Kind.ADMIN, scopes=SCOPES[Kind.ADMIN]))
    await engine.keys.revoke(key.id)
    return bearer(text)


async def worker_revoked(engine: Engine) -> Headers:
    worker = (await engine.workers.register(name="w")).id
    key, text = await engine.keys.create(NewKey(kind=Kind.WORKER, worker_id=worker))
    await engine.keys.revoke(key.id)
    return bearer(text)


async def secret_wrong(engine: Engine) -> Headers:
    return {"X-Admin-Secret": SECRET[:-1]}


async def secret_empty(engine: Engine) -> Headers:
    return {"X-Admin-Secret": ""}


async def secret_as_key(engine: Engine) -> Headers:
    return bearer(SECRET)


STRANGERS = [
    *(nobody, gibberish, another_scheme, never_issued, one_digit_wrong, checksum_wrong, kind_forged, expired),
    *(revoked, worker_revoked, secret_wrong, secret_empty, secret_as_key),
]


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda stranger: stranger.__name__)
async def test_every_route_rejects_a_request_without_a_key(closed: Served, stranger: Row) -> None:
    """No unauthenticated success; the answers do not tell why, nor whether the thing exists."""
    headers = await stranger(closed.engine)
    details = set()
    for route in GUARDED:
        if route.local and not headers:
            continue  # on this machine, whoever shows nothing is let in; what is shown must be good
        answer = await ask(closed, route, headers)
        assert (route.name, answer.status_code) == (route.name, 401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="holdfast"'
        details.add((answer.json()["code"], answer.json()["detail"]))
    assert len(details) == 1


@pytest.mark.parametrize("caller", [nobody, gibberish, revoked, secret_wrong], ids=lambda caller: caller.__name__)
async def test_public_routes_need_no_key(closed: Served, caller: Row) -> None:
    headers = await caller(closed.engine)
    for route in OPEN:
        status = (await ask(closed, route, headers)).status_code
        assert status in {*route.answers, *statuses(route)}, (route.name, status)


# -- another tenant ---------------------------------------------------------------------------------------------


async def test_a_job_of_another_tenant_is_not_found(closed: Served) -> None:
    """SEC-8: to whoever asks, and whatever they ask of it."""
    _, text = await closed.engine.keys.create(NewKey(tenant="another"))
    theirs = (await closed.engine.create(NewJob(type="secret"))).id
    of_a_job = [route for route in GUARDED if "{job_id}" in route.path and route.scope in SCOPES[Kind.CLIENT]]
    assert len(of_a_job) >= 3
    for route in of_a_job:
        answers = []
        for job in (theirs, str(uuid4())):
            answer = await closed.http.request(route.method, route.path.format(job_id=job), headers=bearer(text))
            said = answer.json() | {"requestId": ""}
            answers.append((answer.status_code, str(said).replace(job, "ID"), sorted(answer.headers)))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    assert (await closed.engine.reads.get(theirs)).status == "PENDING"
