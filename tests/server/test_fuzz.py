"""Fuzzed requests get no 5xx, no undocumented response, and no success without a valid key (SEC-20, F33).

Schemathesis generates the requests from the OpenAPI document: 1,500 in `make test`, with a fixed seed, and 15,000 in
`make soak`, by its seed. Hypothesis draws some strings from the constants of all imported modules, so a run of one
file can generate other requests than a run of all. Each case is sent with a valid key to a server on each store, and
to one of them without a key, with an unknown key, and with a key of another kind.
"""

import asyncio
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.engine import Engine, NewWorker
from holdfast.engine.policy_settings import PolicySettings
from holdfast.model import NewJob
from holdfast.model.key import SCOPES, Kind, NewKey, text_of
from holdfast.model.limits import Limit
from holdfast.server.app import ROUTES
from holdfast.server.http.route import EVENT_STREAM, Route
from holdfast.server.openapi.document import document
from holdfast.store import open_store
from holdfast.store.migrate import migrate
from tests.cli.background import Background
from tests.conftest import STORES, administer, find_or_start_server, with_database
from tests.docs.pages import ROOT
from tests.extension import toy
from tests.sampling import Sample

REQUESTS_MIN = 15_000
CASES, SOAK_CASES = 3, 33  # of each route and mode


def without_security(document: Any) -> Any:
    """The test sets the keys itself."""
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security")
    return document


ALL_ROUTES = (*ROUTES, *toy.ext.routes)  # of the core, and of an extension
CLIENT_SCOPES = (*SCOPES[Kind.CLIENT], *toy.ext.scopes)
DOCUMENTED = [route for route in ALL_ROUTES if not route.hidden and route.scope is not None]
WITH_BODY = [route for route in DOCUMENTED if route.body is not None]
FUZZED = [(route, GenerationMode.POSITIVE) for route in DOCUMENTED]
FUZZED += [  # routes with a body or a query that can be invalid
    (route, GenerationMode.NEGATIVE)
    for route in DOCUMENTED
    if isinstance(route.body, type) or (route.query is not None and route.query.__struct_fields__)
]
SCHEMA = schemathesis.openapi.from_dict(without_security(document(ALL_ROUTES)))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
ALWAYS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CHECKS = {GenerationMode.POSITIVE: ALWAYS, GenerationMode.NEGATIVE: [*ALWAYS, negative_data_rejection]}
INTERNALS = re.compile(r"Traceback|File \"|\.py\b|SELECT |INSERT |asyncpg|sqlite3|psycopg|uvicorn|msgspec|/usr/|/home/")
PARTIAL_SUCCESS = ("/api/worker/report",)  # rejects single reports inside a 200 response
OTHER_KIND = {Kind.CLIENT: Kind.WORKER, Kind.WORKER: Kind.ADMIN, Kind.ADMIN: Kind.CLIENT}
UNKNOWN_KEY = text_of(Kind.CLIENT, "0" * 16, "0" * 64)


@dataclass
class Target:
    """A server whose database has jobs, workers, keys and leases."""

    url: str
    keys: dict[Kind, str]
    ids: dict[str, list[str]]  # of existing objects, by path parameter
    leases: list[dict[str, str]]
    http: requests.Session = field(default_factory=requests.Session)


# -- the servers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def targets(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """One on each store."""
    wanted = pytestconfig.getoption("store")
    with ExitStack() as stack:
        urls = []
        if wanted != "postgres":
            urls.append(f"sqlite:///{tmp_path_factory.mktemp('fuzz')}/jobs.db")
        if wanted != "sqlite":
            urls.append(stack.enter_context(postgres_database(find_or_start_server(pytestconfig))))
        yield [stack.enter_context(serving(tmp_path_factory.mktemp("served"), url)) for url in urls]


@contextmanager
def postgres_database(server: str) -> Iterator[str]:
    name = f"hf_fuzz_{secrets.token_hex(8)}"
    asyncio.run(administer(server, f"CREATE DATABASE {name}"))
    yield with_database(server, name)
    asyncio.run(administer(server, f"DROP DATABASE {name} WITH (FORCE)"))


@contextmanager
def serving(folder: Path, database: str) -> Iterator[Target]:
    """A server process that exits with status 0 and has logged no traceback."""
    asyncio.run(migrate(database, toy.app.extensions.values()))
    variables = {"DATABASE_URL": database, "ADMIN_SECRET": "an admin secret", "WEBHOOK_HOSTS": "hooks.invalid"}
    variables["UNKNOWN_JOB_TYPES"] = "accept"
    ours = {f"HOLDFAST_{name}": value for name, value in variables.items()}
    command = ("serve", "--port", "0", "--app", "tests.extension.toy:app")
    with Background(*command, folder=folder, PYTHONPATH=f"{ROOT}", **ours) as process:
        process.until_it_says("ready: http")
        found = re.search(r"ready: (http://[^,]+),", process.said)
        assert found is not None
        yield asyncio.run(populate(database, found[1]))
        assert process.end() == 0
        assert "Traceback" not in process.said, process.said


async def populate(database: str, url: str) -> Target:
    engine = Engine(await open_store(database), policy_settings=PolicySettings({"lease_seconds": 3600.0}))
    try:
        worker, worker_key = await engine.workers.register_with_key(NewWorker(name="in use"))
        spare, _ = await engine.workers.register_with_key(NewWorker(name="spare"))
        _, client_key = await engine.keys.create(NewKey(scopes=CLIENT_SCOPES))
        _, admin_key = await engine.keys.create(NewKey(kind=Kind.ADMIN, scopes=SCOPES[Kind.ADMIN]))
        made = await engine.create_many([NewJob(type="fuzz", queue="q", payload={"n": n}) for n in range(40)])
        leases = await engine.claim(worker.id, limit=20)
        await engine.cancel(made[-1].id)
        keys = [(await engine.keys.create(NewKey(name="spare"))).key.id for _ in range(3)]
        await engine.job_limits.set("tenant:other", Limit(4), by="operator", weight=3)
    finally:
        await engine.close()
    ids = {"jobId": [job.id for job in made], "workerId": [spare.id], "keyId": keys, "queue": ["q", "default"]}
    return Target(
        url,
        {Kind.CLIENT: client_key, Kind.WORKER: worker_key, Kind.ADMIN: admin_key},
        ids | {"name": ["default", "orchestration"], "limit": ["tenant:other", "key:other a"]},
        [{"jobId": lease.id, "leaseToken": lease.token} for lease in leases],
    )


# -- the requests -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(("route", "mode"), FUZZED, ids=lambda value: str(getattr(value, "name", value)))
def test_every_response_to_a_fuzzed_request_is_documented(
    targets: list[Target], route: Route, mode: GenerationMode, sample: Sample
) -> None:
    """SEC-20, F33: both stores reject the same requests."""
    kind = kind_of(route)
    checks = ALWAYS if route.path in PARTIAL_SUCCESS else CHECKS[mode]

    @settings(
        max_examples=SOAK_CASES if sample.soak else CASES,
        derandomize=not sample.soak,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label(route)].as_strategy(generation_mode=mode), pick=st.integers(0, 99))
    def run(case: Case, pick: int) -> None:
        without_waiting(case)
        guarded = targets[pick % len(targets)]
        if not route.local:  # local routes need no key from a loopback address
            for key in (None, UNKNOWN_KEY):
                assert send(case, guarded, key).status_code in (401, 429)
            assert send(case, guarded, guarded.keys[OTHER_KIND[kind]]).status_code == 403
        statuses = set()
        for target in targets:
            if mode is GenerationMode.POSITIVE:
                use_existing_ids(case, target, pick)
            answer = send(case, target, target.keys[kind])
            statuses.add(answer.status_code)
            if answer.headers.get("content-type") != EVENT_STREAM:
                case.validate_response(Response.from_requests(answer, verify=False), checks=checks)
        assert len(statuses) == 1 or max(statuses) < 400

    (seed(sample.number)(run) if sample.soak else run)()


def test_a_soak_run_makes_enough_requests() -> None:
    made = len(FUZZED) * SOAK_CASES * (len(STORES) + 3)
    assert made + len(MALFORMED) * len(WITH_BODY) * len(STORES) >= REQUESTS_MIN


# -- malformed bodies that no schema generates ------------------------------------------------------------------

MALFORMED = {
    "spaces": b" " * 100,
    "no json": b"{'a': 1}",
    "half": b'{"jobType": "a", "payl',
    "not utf-8": b'{"jobType": "\xff\xfe"}',
    "a list": b"[]",
    "null": b"null",
    "a number of a million digits": b'{"limit": ' + b"9" * 900_000 + b"}",
    "an exponent": b'{"limit": 1e999}',
    "not a number": b'{"limit": NaN}',
    "nested deeply": b"[" * 100_000,
    "nested deeply inside": b'{"payload": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    "nul": b'{"jobType": "a\\u0000b", "queues": ["\\u0000"], "name": "\\u0000", "instanceId": "\\u0000"}',
    "half a character": b'{"jobType": "\\ud800", "queues": ["\\ud800"], "name": "\\udfff", "jobId": "\\ud800"}',
    "a name twice, in two spellings": b'{"jobId": "a", "job_id": "b", "jobType": "a", "job_type": "b"}',
    "one byte too many": b'{"a": "' + b"a" * (1_048_577 - 9) + b'"}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_both_stores_reject_a_malformed_body_with_the_same_error(targets: list[Target], body: bytes) -> None:
    """F33: never a 5xx, and no body that only one of the databases accepts."""
    for route in WITH_BODY:
        path = re.sub(r"\{\w+\}", "01a1de61-081d-7ef1-9afc-d9ab2f5509bd", route.path)
        seen = set()
        for target in targets:
            headers = {"Authorization": f"Bearer {target.keys[kind_of(route)]}", "Content-Type": "application/json"}
            answer = target.http.request(route.method, f"{target.url}{path}", data=body, headers=headers, timeout=60)
            assert 400 <= answer.status_code < 500, (route.name, answer.text)
            assert not INTERNALS.search(answer.text), answer.text
            seen.add((answer.status_code, answer.json()["code"]))
        assert len(seen) == 1, (route.name, seen)


def test_an_error_that_quotes_the_path_is_not_a_leak_of_internals(targets: list[Target]) -> None:
    case = OPERATIONS["GET /notes/{noteId}/file"].Case(path_parameters={"noteId": "SELECT%201"})
    answer = send(case, targets[0], targets[0].keys[Kind.CLIENT])
    assert (answer.status_code, answer.json()["detail"]) == (404, "object 'SELECT 1' does not exist")


def kind_of(route: Route) -> Kind:
    return next((kind for kind, scopes in SCOPES.items() if route.scope in scopes), Kind.CLIENT)


def label(route: Route) -> str:
    camel = re.sub(r"_([a-z])(?=[^{]*\})", lambda found: found[1].upper(), route.path)
    return f"{route.method} {camel}"


def without_waiting(case: Case) -> None:
    """Remove long polls from the request."""
    case.headers.pop("Prefer", None)
    if isinstance(case.body, dict) and isinstance(case.body.get("waitSeconds"), int | float):
        case.body["waitSeconds"] = min(case.body["waitSeconds"], 0)


def use_existing_ids(case: Case, target: Target, pick: int) -> None:
    """Replace generated ids by ids of objects that exist."""
    for name, existing in target.ids.items():
        if name in case.path_parameters:
            case.path_parameters[name] = existing[pick % len(existing)]
    if isinstance(case.body, dict) and "leaseToken" in case.body:
        case.body |= target.leases[pick % len(target.leases)]


def send(case: Case, target: Target, key: str | None) -> requests.Response:
    """Read only the headers of an event stream."""
    arguments = case.as_transport_kwargs(base_url=target.url)
    headers = dict(arguments.pop("headers") or {})
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    answer = target.http.request(**arguments, headers=headers, stream=True, timeout=60)
    if answer.headers.get("content-type") == EVENT_STREAM:
        answer.close()
    elif answer.headers.get("content-type") != toy.BINARY:  # a file contains what an earlier request uploaded
        internals = INTERNALS.search(answer.text)
        sent = unquote(repr(arguments))  # an error may quote a parameter of the path, such as `SELECT 1`
        assert internals is None or internals[0] in sent, answer.text
    return answer
