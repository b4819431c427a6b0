"""The servers of a run: PostgreSQL that syncs every commit, Valkey or Redis with an append-only file, SQLite files."""

from __future__ import annotations

import re
import shutil
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import psycopg

from benchmarks.databases import QUIET
from benchmarks.peers.environments import redis_server
from benchmarks.peers.processes import cpu_seconds
from tests.servers.postgres import PostgresServer

START_SECONDS = 20.0
SETTLE_SECONDS = 3.0

Prepare = Callable[[str], None]  # makes the schema of a peer at this address


class Counted(NamedTuple):
    """What PostgreSQL has counted so far for one database."""

    commits: int
    wal_bytes: int


class Place:
    """Where one cell of one peer keeps its jobs: as its `prepare` left it at first, and gone afterwards."""

    def __init__(self, url: str) -> None:
        self.url = url

    def pending(self, sql: str) -> bool:
        """Whether this query finds a row."""
        raise NotImplementedError

    def run(self, sql: str) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """What the store would do by itself, in time, after many jobs were added."""

    def counted(self) -> Counted | None:
        """None where that cannot be known."""
        return None


class Store(Protocol):
    about: str

    def fresh(self, package: str, prepare: Prepare) -> AbstractContextManager[Place]: ...
    def cpu_seconds(self) -> float | None: ...
    def close(self) -> None: ...


def start(kind: str, directory: Path) -> Store:
    kinds: dict[str, Callable[[Path], Store]] = {"postgres": Postgres, "redis": Redis, "sqlite": Sqlite}
    return kinds[kind](directory)


# -- PostgreSQL ----------------------------------------------------------------------------------------------------


class PostgresPlace(Place):
    def __init__(self, server: PostgresServer, name: str) -> None:
        super().__init__(server.dsn(name))
        self._above, self._name = server.dsn(), name

    def pending(self, sql: str) -> bool:
        return bool(_asked(self.url, f"SELECT EXISTS ({sql})")[0])

    def run(self, sql: str) -> None:
        _tell(self.url, sql)

    def settle(self) -> None:
        """Autovacuum is off, lest it hit one peer and spare another."""
        _tell(self.url, "VACUUM (ANALYZE)")

    def counted(self) -> Counted:
        """A session reports its counts at the latest when it ends: wait for that."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while _asked(self._above, _SESSIONS, self._name)[0] and time.monotonic() < deadline:
            time.sleep(0.05)
        return Counted(*_asked(self._above, _COUNTS, self._name))


_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
_COUNTS = """
SELECT xact_commit, (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint FROM pg_stat_database WHERE datname = %s"""


class Postgres:
    """One durable server for the whole run; every database starts as a copy of one that the peer prepared."""

    def __init__(self, directory: Path) -> None:
        self._server = PostgresServer(durable=True)
        self._server.start()
        self._numbers = count(1)
        self._prepared: set[str] = set()
        self._making = Lock()
        for setting in QUIET:
            _tell(self._server.dsn(), f"ALTER SYSTEM SET {setting}")
        _tell(self._server.dsn(), "SELECT pg_reload_conf()")
        version = _asked(self._server.dsn(), "SHOW server_version")[0].split()[0]
        self.about = f"PostgreSQL {version}, fsync and synchronous_commit on"

    @contextmanager
    def fresh(self, package: str, prepare: Prepare) -> Iterator[PostgresPlace]:
        template = "peer_" + re.sub(r"\W", "_", package)
        name = f"{template}_{next(self._numbers)}"
        with self._making:
            self._template(template, prepare)
            _tell(self._server.dsn(), f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield PostgresPlace(self._server, name)
        finally:
            _tell(self._server.dsn(), f"DROP DATABASE {name} WITH (FORCE)")

    def _template(self, name: str, prepare: Prepare) -> None:
        if name not in self._prepared:
            _tell(self._server.dsn(), f"CREATE DATABASE {name}")
            prepare(self._server.dsn(name))
            self._prepared.add(name)

    def cpu_seconds(self) -> float:
        pid = (self._server.directory / "data/postmaster.pid").read_text().split()[0]
        return cpu_seconds([int(pid)])

    def close(self) -> None:
        self._server.close()


def _tell(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def _asked(url: str, sql: str, *values: str) -> tuple[Any, ...]:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql.encode(), values or None).fetchone()
    assert row
    return tuple(row)


# -- Redis ---------------------------------------------------------------------------------------------------------


class Redis:
    """Syncs its append-only file every second, as its own documentation recommends."""

    def __init__(self, directory: Path) -> None:
        program = redis_server()
        self._port = _free_port()
        self._numbers = count()
        options = ["--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(directory), "--databases", "100"]
        with (directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, *options, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait()
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        self.about = f"{program.stem.partition('-')[0].title()} {_version_in(version)}, appendfsync everysec"

    @contextmanager
    def fresh(self, package: str, prepare: Prepare) -> Iterator[Place]:
        number = next(self._numbers) % 100
        self._say(f"SELECT {number}", "FLUSHDB")
        yield Place(f"redis://127.0.0.1:{self._port}/{number}")
        self._say(f"SELECT {number}", "FLUSHDB")

    def cpu_seconds(self) -> float:
        return cpu_seconds([self._process.pid])

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._say("PING")
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _say(self, *commands: str) -> None:
        with socket.create_connection(("127.0.0.1", self._port), timeout=START_SECONDS) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
            answer = b""
            while answer.count(b"\r\n") < len(commands):
                answer += connection.recv(1000)
            assert b"-ERR" not in answer, answer


def _version_in(text: str) -> str:
    found = re.search(r"v=(\S+)", text)
    return found[1] if found else "of unknown version"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- SQLite --------------------------------------------------------------------------------------------------------


class SqlitePlace(Place):
    def __init__(self, directory: Path) -> None:
        self._file = directory / "jobs.db"
        super().__init__(f"sqlite:///{self._file}")

    def pending(self, sql: str) -> bool:
        with closing(sqlite3.connect(self._file)) as connection:
            return bool(connection.execute(f"SELECT EXISTS ({sql})").fetchone()[0])


class Sqlite:
    """A directory for each cell, a copy of one that the peer prepared."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count(1)
        self._making = Lock()
        self.about = f"SQLite {sqlite3.sqlite_version}"

    @contextmanager
    def fresh(self, package: str, prepare: Prepare) -> Iterator[SqlitePlace]:
        template, place = self._directory / package, self._directory / f"{package}-{next(self._numbers)}"
        with self._making:
            if not template.exists():
                template.mkdir()
                prepare(SqlitePlace(template).url)
        shutil.copytree(template, place)
        try:
            yield SqlitePlace(place)
        finally:
            shutil.rmtree(place)

    def cpu_seconds(self) -> None:
        """The database is a part of the worker."""
        return

    def close(self) -> None:
        """No server to stop."""
