"""Whatever is sent, by whomever: no 5xx, no undocumented answer, no success without a key (SEC-20, F33).

Five thousand requests made by schemathesis from the OpenAPI document, the same in every run. Each case is sent three
times: by whoever may, without a key, and with a wrong one.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response as Answered
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.engine import Engine, NewWorker
from holdfast.model import NewJob
from holdfast.model.key import SCOPES, Kind, NewKey, Scope, text_of
from holdfast.server.app import ROUTES
from holdfast.server.openapi import document
from holdfast.server.route import EVENT_STREAM, Route
from holdfast.store import open_store
from holdfast.store.migrate import migrate
from tests.cli.background import Background
from tests.conftest import STORES, administer, with_database

REQUESTS_MIN = 5_000
CASES = 14  # of each route, store and mode
WAYS = 3  # right key, none, a wrong one
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)

SHOWN = [route for route in ROUTES if not route.hidden and route.scope is not None]
SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
INSIDES = re.compile(r"Traceback|File \"|\.py\b|SELECT |INSERT |asyncpg|sqlite3|psycopg|uvicorn|msgspec|/usr/|/home/")
NOBODYS = text_of(Kind.CLIENT, "0" * 16, "0" * 64)


@dataclass
class Target:
    """A server with a little of everything in it."""

    url: str
    log: Background
    keys: dict[Kind, str]
    things: dict[str, list[str]]  # by what a path calls them
    leases: list[dict[str, str]]
    http: requests.Session = field(default_factory=requests.Session)


def label(route: Route) -> str:
    camel = re.sub(r"_([a-z])(?=[^{]*\})", lambda found: found[1].upper(), route.path)
    return f"{route.method} {camel}"


# -- the server -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[pytest.param(store, marks=getattr(pytest.mark, store)) for store in STORES])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    url = f"sqlite:///{folder}/jobs.db"
    if request.param == "postgres":
        server, name = request.getfixturevalue("postgres_server_url"), f"hf_fuzz_{folder.name}".replace("-", "_")
        asyncio.run(administer(server, f"DROP DATABASE IF EXISTS {name}"))
        asyncio.run(administer(server, f"CREATE DATABASE {name}"))
        url = with_database(server, name)
    asyncio.run(migrate(url))
    with serving(folder, url) as target:
        yield target
    if request.param == "postgres":
        asyncio.run(administer(server, f"DROP DATABASE {name} WITH (FORCE)"))


class serving:  # noqa: N801
    def __init__(self, folder: Path, url: str) -> None:
        self._url = url
        self._log = Background(
            *("serve", "--port", "0"),
            folder=folder,
            HOLDFAST_DATABASE_URL=url,
            HOLDFAST_ADMIN_SECRET="what nobody would guess",
            HOLDFAST_WEBHOOK_HOSTS="hooks.invalid",
        )

    def __enter__(self) -> Target:
        self._log.until_it_says("ready: http")
        found = re.search(r"ready: (http://[^,]+),", self._log.said)
        assert found is not None
        return asyncio.run(furnished(self._url, found[1], self._log))

    def __exit__(self, *_: object) -> None:
        assert self._log.end() == 0
        assert "Traceback" not in self._log.said, self._log.said


async def furnished(database: str, url: str, log: Background) -> Target:
    engine = Engine(await open_store(database))
    try:
        worker, worker_key = await engine.register_with_key(NewWorker(name="in use"))
        spare, _ = await engine.register_with_key(NewWorker(name="spare"))
        _, client_key = await engine.create_key(NewKey())
        admin, admin_key = await engine.create_key(NewKey(kind=Kind.ADMIN, scopes=SCOPES[Kind.ADMIN]))
        made = await engine.create_many([NewJob(type="fuzz", queue="q", payload={"n": n}) for n in range(40)])
        leases = await engine.claim(worker.id, limit=20)
        await engine.complete_many(worker.id, [])
        await engine.cancel(made[-1].id)
        keys = [(await engine.create_key(NewKey(name="spare"))).key.id for _ in range(3)]
    finally:
        await engine.close()
    return Target(
        url,
        log,
        {Kind.CLIENT: client_key, Kind.WORKER: worker_key, Kind.ADMIN: admin_key},
        {
            "jobId": [job.id for job in made],
            "workerId": [spare.id],
            "keyId": keys,
            "queue": ["q", "default"],
            "name": ["default", "orchestration"],
        },
        [{"jobId": lease.id, "leaseToken": lease.token} for lease in leases],
    )


# -- the requests -----------------------------------------------------------------------------------------------


def made_real(case: Case, target: Target, pick: int) -> None:
    """What is asked for exists now and then, and nobody waits."""
    for name, real in target.things.items():
        if name in case.path_parameters:
            case.path_parameters[name] = real[pick % len(real)]
    if isinstance(case.body, dict) and "leaseToken" in case.body and target.leases:
        case.body |= target.leases[pick % len(target.leases)]


def at_once(case: Case) -> None:
    if isinstance(case.body, dict) and isinstance(case.body.get("waitSeconds"), int | float):
        case.body["waitSeconds"] = min(case.body["waitSeconds"], 0)


def send(case: Case, target: Target, key: str | None) -> requests.Response:
    """Of a stream, only its beginning."""
    arguments = case.as_transport_kwargs(base_url=target.url)
    headers = {name: value for name, value in (arguments.pop("headers") or {}).items() if name != "Authorization"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    answer = target.http.request(**arguments, headers=headers, stream=True, timeout=60)
    if answer.headers.get("content-type") == EVENT_STREAM:
        answer.close()
    else:
        assert not INSIDES.search(answer.text), answer.text
    return answer


def kind_of(scope: Scope | None) -> Kind:
    return next(kind for kind, scopes in SCOPES.items() if scope in scopes)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("route", SHOWN, ids=lambda route: route.name)
def test_every_answer_is_a_documented_one(target: Target, route: Route, mode: GenerationMode) -> None:
    operation, sent = OPERATIONS[label(route)], 0
    checks = CHECKS + ([negative_data_rejection] if mode is GenerationMode.NEGATIVE else [])

    @settings(
        max_examples=CASES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), pick=st.integers(0, 99))
    def run(case: Case, pick: int) -> None:
        nonlocal sent
        at_once(case)
        if mode is GenerationMode.POSITIVE:
            made_real(case, target, pick)
        for key in (None, NOBODYS):
            assert send(case, target, key).status_code in (401, 429)
        answer = send(case, target, target.keys[kind_of(route.scope)])
        if answer.headers.get("content-type") == EVENT_STREAM:
            assert answer.status_code == 200
        else:
            case.validate_response(Answered.from_requests(answer, verify=False), checks=checks)
        sent += WAYS

    run()
    assert sent
