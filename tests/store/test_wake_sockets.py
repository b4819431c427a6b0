"""Wake-up sockets beside a SQLite file: other processes are woken at once, and nothing depends on it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import App
from holdfast.engine import Engine
from holdfast.ids import Ids
from holdfast.store import open_store
from holdfast.store import presence as presence_module
from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.notify import decode_queues
from holdfast.store.presence import FEW_PROCESSES, Presence, open_presence
from holdfast.store.wake_sockets import HINTS, RESULTS, WakeDirectory, WakeSender, WakeSocket
from tests.store.alive import living
from tests.worker.in_process import until

LONG, SHORT = 60.0, 0.2


def encoded(queues: set[str]) -> list[bytes]:
    return [json.dumps(sorted(queues)).encode()]


class Heard:
    """A socket, and what it has received."""

    def __init__(self, directory: WakeDirectory, kind: str = HINTS) -> None:
        self.datagrams: list[bytes] = []
        self.socket = WakeSocket(directory, kind, Ids(), self.datagrams.append)

    @property
    def queues(self) -> list[list[str] | None]:
        return [decode_queues(each.decode()) for each in self.datagrams]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def directory(database: Path) -> WakeDirectory:
    return WakeDirectory(database)


@pytest.fixture
async def heard(directory: WakeDirectory) -> AsyncIterator[Heard]:
    heard = Heard(directory)
    yield heard
    heard.socket.close()


def names_in(directory: WakeDirectory) -> set[str]:
    return {each.name for each in directory.path.iterdir()} if directory.path.is_dir() else set()


# -- from the commit to the waiting process ---------------------------------------------------------------------------


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A presence looks at the file once, when it begins to wait, and then never again."""
    monkeypatch.setattr(presence_module, "POLL_SECONDS", 3600.0)


@pytest.fixture
async def presence(fresh_sqlite_url: str, no_polling: None) -> AsyncIterator[Presence]:
    await migrate(fresh_sqlite_url)
    presence = await open_presence(fresh_sqlite_url, queues=["parcels"])
    yield presence
    await presence.close()


async def nothing_to_hear(presence: Presence) -> None:
    while await presence.wait(SHORT):
        continue


@pytest.mark.parametrize("enqueued_by", ["async", "sync"])
async def test_an_enqueued_job_wakes_the_workers_of_its_queue_without_a_poll(
    fresh_sqlite_url: str, presence: Presence, enqueued_by: str
) -> None:
    app = App(database_url=fresh_sqlite_url)

    @app.job(queue="parcels")
    async def ship() -> None: ...

    @app.job(queue="letters")
    async def write() -> None: ...

    async with app:
        await nothing_to_hear(presence)
        waiting = asyncio.create_task(presence.wait(LONG))
        await asyncio.sleep(0)  # it has looked at the file
        await write.enqueue()
        await asyncio.wait([waiting], timeout=SHORT)
        assert not waiting.done()
        if enqueued_by == "async":
            await ship.enqueue()
        else:
            await asyncio.to_thread(ship.enqueue_sync)
        assert await waiting
    await asyncio.to_thread(app.close_sync)


async def test_a_hint_means_work_and_a_change_of_the_file_does_not(fresh_sqlite_url: str) -> None:
    """After a mere change a worker looks before it claims; so do the workers of many processes after a hint."""
    await migrate(fresh_sqlite_url)
    directory = WakeDirectory(sqlite_path(fresh_sqlite_url))
    presence = await open_presence(fresh_sqlite_url, queues=["parcels"])
    directory.send(HINTS, encoded({"parcels"}))
    assert (await presence.wait(LONG), presence.exact) == (True, True)
    engine = Engine(await open_store(fresh_sqlite_url))
    await engine.workers.register()
    directory.send(HINTS, encoded({"letters"}))  # for others
    assert (await presence.wait(LONG), presence.exact) == (True, False)
    presence.wake({"parcels"})  # from this process
    assert (await presence.wait(LONG), presence.exact) == (True, True)
    presence.set_live_processes(FEW_PROCESSES + 1)
    presence.wake({"parcels"})
    assert (await presence.wait(LONG), presence.exact) == (True, False)
    await engine.close()
    await presence.close()


async def test_a_worker_whose_socket_cannot_be_made_polls_the_file(
    fresh_sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a directory that cannot be written."""
    await migrate(fresh_sqlite_url)
    caplog.set_level("INFO", "holdfast.store.wake_sockets")
    WakeDirectory(sqlite_path(fresh_sqlite_url)).path.write_text("in the way")
    presence = await open_presence(fresh_sqlite_url)
    assert "polling instead" in caplog.text
    async with App(database_url=fresh_sqlite_url) as app:

        @app.job()
        async def ship() -> None: ...

        waiting = asyncio.create_task(presence.wait(LONG))
        await ship.enqueue()
        assert await waiting
    await presence.close()


# -- sending and receiving --------------------------------------------------------------------------------------------


async def test_the_first_hint_is_sent_at_once_and_later_ones_are_combined(
    directory: WakeDirectory, heard: Heard
) -> None:
    send = WakeSender(directory, HINTS, encoded)
    for number in range(1000):
        send({f"q{number % 20}"})
    await until(lambda: len(heard.datagrams) == 2)
    assert heard.queues == [["q0"], sorted(f"q{number}" for number in range(20))]
    send({"q0"})
    send({"last"})
    await send.close()  # sends what is pending
    send({"too late"})
    await until(lambda: "last" in (heard.queues[-1] or ()))
    assert "too late" not in str(heard.queues)


async def test_a_datagram_reaches_every_socket_of_its_kind_and_no_other(directory: WakeDirectory, heard: Heard) -> None:
    second, other = Heard(directory), Heard(directory, RESULTS)
    directory.send(HINTS, [b"1"])
    directory.send(RESULTS, [b"2"])
    await until(lambda: heard.datagrams and second.datagrams and other.datagrams)
    assert (heard.datagrams, second.datagrams, other.datagrams) == ([b"1"], [b"1"], [b"2"])
    second.socket.close()
    other.socket.close()


async def test_a_process_that_does_not_read_delays_no_sender_and_hears_again_when_it_reads(
    directory: WakeDirectory, heard: Heard
) -> None:
    for _ in range(2000):  # the event loop does not run: nothing is read
        directory.send(HINTS, [b"x" * 4000])
    await until(lambda: heard.datagrams)
    assert b"" in heard.datagrams, "some were dropped: any queue may have work"
    directory.send(HINTS, [b"again"])
    await until(lambda: b"again" in heard.datagrams)
    assert len(heard.datagrams) < 2000


async def test_sending_without_a_waiting_process_creates_nothing(directory: WakeDirectory) -> None:
    directory.send(HINTS, [b"x"])
    assert not directory.path.exists()


@pytest.mark.parametrize("length", [60, 120, 200])
async def test_a_path_longer_than_the_address_of_a_socket_works(tmp_path: Path, length: int) -> None:
    (folder := tmp_path / ("d" * length)).mkdir()
    directory = WakeDirectory(folder / "jobs.db")
    heard = Heard(directory)
    directory.send(HINTS, [b"x"])
    await until(lambda: heard.datagrams == [b"x"])
    heard.socket.close()
    assert list(folder.iterdir()) == []


async def test_processes_that_name_the_file_differently_meet(tmp_path: Path, database: Path, heard: Heard) -> None:
    (tmp_path / "link.db").symlink_to(database)
    WakeDirectory(tmp_path / "link.db").send(HINTS, [b"x"])
    await until(lambda: heard.datagrams == [b"x"])


# -- what is left on the disk -----------------------------------------------------------------------------------------


async def test_sockets_are_private_and_removed_with_the_last_process(directory: WakeDirectory) -> None:
    first, second = Heard(directory), Heard(directory)
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert len(names_in(directory)) == 2
    first.socket.close()
    assert len(names_in(directory)) == 1
    second.socket.close()
    assert not directory.path.exists()


@pytest.mark.parametrize("removed_by", ["sender", "new process"])
async def test_the_socket_of_a_killed_process_is_removed(fresh_sqlite_url: str, removed_by: str) -> None:
    await migrate(fresh_sqlite_url)
    directory = WakeDirectory(sqlite_path(fresh_sqlite_url))
    async with living(fresh_sqlite_url) as other:
        [left] = names_in(directory)
        await other.kill()
    assert names_in(directory) == {left}
    if removed_by == "sender":
        directory.send(HINTS, [b"x"])
    else:
        Heard(directory).socket.close()
    assert left not in names_in(directory)


async def test_a_living_process_keeps_its_socket(directory: WakeDirectory, heard: Heard) -> None:
    names = names_in(directory)
    directory.send(HINTS, [b"1"])
    Heard(directory).socket.close()
    assert names_in(directory) == names
    directory.send(HINTS, [b"2"])
    await until(lambda: heard.datagrams == [b"1", b"2"])


def test_a_socket_whose_event_loop_has_ended_can_be_closed(directory: WakeDirectory) -> None:
    async def make() -> Heard:
        return Heard(directory)

    asyncio.run(make()).socket.close()
    assert not directory.path.exists()


async def test_without_unix_sockets_nothing_is_received(
    directory: WakeDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    heard = Heard(directory)
    assert not heard.socket.open
    directory.send(HINTS, [b"x"])
    heard.socket.close()
