"""Databases for tests: `--store` picks the stores, and each test gets an empty, migrated database of its own.

PostgreSQL is the server of HOLDFAST_TEST_DATABASE_URL, else one that each process of the run starts for itself: readers
of the log wait for whatever is open on their server, and a test must not wait for the database that another one makes.
"""

import asyncio
import os
import secrets
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from holdfast.clock import MovableClock
from holdfast.engine import Engine
from holdfast.ids import SeededIds
from holdfast.outage_log import outage
from holdfast.store import open_store
from holdfast.store.migrate import migrate, sqlite_path
from tests.mutation.mutants import switch_on_from_environment
from tests.sampling import Sample, add_options, left_out
from tests.servers.aws import AwsServer
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.s3 import S3Server

if TYPE_CHECKING:
    from playwright.async_api import Browser

switch_on_from_environment()
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; what tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)

STORES = ("sqlite", "postgres")
SERVER = pytest.StashKey[PostgresServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=["both", *STORES], default="both", help="run on this store only")
    add_options(parser)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need another store than `--store` names, and the cases that are not in the sample."""
    store = config.getoption("store")
    rest = {item for item in items if store != "both" and not stores_of(item) <= {store}}
    rest |= left_out(config, [item for item in items if item not in rest])
    config.hook.pytest_deselected(items=list(rest))
    items[:] = [item for item in items if item not in rest]


def pytest_report_header(config: pytest.Config) -> str:
    return str(Sample.of(config))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: pytest.ExitCode, config: pytest.Config
) -> None:
    if exitstatus is pytest.ExitCode.TESTS_FAILED:
        terminalreporter.write_line(str(Sample.of(config)))


@pytest.fixture(scope="session")
def sample(pytestconfig: pytest.Config) -> Sample:
    """How much to do of what is too long for every run, and with which seed."""
    return Sample.of(pytestconfig)


def stores_of(item: pytest.Item) -> set[str]:
    fixtures = getattr(item, "fixturenames", ())
    return {store for store in STORES if item.get_closest_marker(store) or f"fresh_{store}_url" in fixtures}


@pytest.fixture(autouse=True)
def no_outage_yet() -> None:
    """An outage is told once for each process, and tests share one."""
    outage.forget()


def find_or_start_server(config: pytest.Config) -> str:
    if url := os.environ.get("HOLDFAST_TEST_DATABASE_URL"):
        return url
    if SERVER not in config.stash:
        # Autovacuum would be in the way, too; and to drop a database is to search all buffers for its pages.
        config.stash[SERVER] = PostgresServer(settings=["autovacuum_naptime=1h", "shared_buffers=32MB"])
        config.add_cleanup(config.stash[SERVER].close)
        config.stash[SERVER].start()
    return config.stash[SERVER].dsn()


async def administer(server_url: str, statement: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def with_database(server_url: str, name: str) -> str:
    return urlsplit(server_url)._replace(path=f"/{name}").geturl()


@pytest.fixture(scope="session")
def postgres_server_url(pytestconfig: pytest.Config) -> str:
    return find_or_start_server(pytestconfig)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_template(postgres_server_url: str) -> AsyncIterator[str]:
    """The name of a migrated database, made once in each process and only ever copied."""
    name = f"hf_template_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{secrets.token_hex(4)}"
    await administer(postgres_server_url, f"CREATE DATABASE {name}")
    await migrate(with_database(postgres_server_url, name))
    yield name
    await administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres_operator(postgres_server_url: str) -> Iterator[psycopg.Connection]:
    """One connection for all databases of the run: to open one costs as much as to copy a database."""
    with psycopg.connect(postgres_server_url, autocommit=True, application_name="tests") as connection:
        yield connection


@pytest.fixture
def fresh_postgres_url(
    postgres_server_url: str, postgres_template: str, postgres_operator: psycopg.Connection
) -> Iterator[str]:
    name = f"hf_test_{secrets.token_hex(8)}"
    # Copied file by file: the default since version 15 writes each page to the log, at twice the cost.
    how = " STRATEGY file_copy" if postgres_operator.info.server_version >= 150_000 else ""
    postgres_operator.execute(f"CREATE DATABASE {name} TEMPLATE {postgres_template}{how}")
    yield with_database(postgres_server_url, name)
    postgres_operator.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def fresh_sqlite_url(tmp_path: Path) -> str:
    """A file that is not there yet: what opens it first makes its tables."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database that is only ever copied."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    return path


@pytest.fixture(params=[pytest.param(store, marks=getattr(pytest.mark, store)) for store in STORES])
def store_url(request: pytest.FixtureRequest) -> str:
    """The test runs once on each store, on an empty, migrated database."""
    url = str(request.getfixturevalue(f"fresh_{request.param}_url"))
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), sqlite_path(url))
    return url


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def engine(store_url: str, clock: MovableClock) -> AsyncIterator[Engine]:
    """An engine on an empty database, on each store in turn, whose time only the test moves."""
    ids = SeededIds(7)
    engine = Engine(await open_store(store_url, clock, ids), clock=clock, ids=ids)
    yield engine
    await engine.close()


@pytest.fixture
async def worker(engine: Engine) -> str:
    """The id of a registered worker that can do nothing special."""
    return (await engine.workers.register(name="tester")).id


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    with RedisServer.started() as server:
        yield server


@pytest.fixture
def redis_server(redis_process: RedisServer) -> RedisServer:
    """Up and empty, whatever the test before has done to it."""
    redis_process.reset()
    return redis_process


@pytest.fixture(scope="session")
def nats_process() -> Iterator[NatsServer]:
    with NatsServer.started() as server:
        yield server


@pytest.fixture
def nats_server(nats_process: NatsServer) -> NatsServer:
    nats_process.restart(kill=True, empty=True)
    return nats_process


@pytest.fixture(scope="session")
def aws_process() -> Iterator[AwsServer]:
    with AwsServer.started() as server:
        yield server


@pytest.fixture
def aws_server(aws_process: AwsServer, monkeypatch: pytest.MonkeyPatch) -> AwsServer:
    """Empty. Its clients, in all processes, take credentials and region from the environment."""
    if not aws_process.running:
        aws_process.start()
    aws_process.reset()
    for name, value in aws_process.credentials.items():
        monkeypatch.setenv(name, value)
    return aws_process


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator["Browser"]:
    """One Chromium for all tests that look at pages; they run in its loop: `asyncio(loop_scope="session")`."""
    from tests.servers.browser import launched  # slow: playwright

    async with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Tests that stop it start it again; each has a prefix of its own."""
    with S3Server.started() as server:
        yield server
