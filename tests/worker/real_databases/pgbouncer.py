"""PgBouncer in transaction mode in front of PostgreSQL: after each transaction the connection is another client's."""

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

PROGRAM = shutil.which("pgbouncer")
PATIENCE_SECONDS = 60


@contextlib.asynccontextmanager
async def pooled(url: str) -> AsyncIterator[str]:
    """The address of the same database behind a pooler with few connections."""
    assert PROGRAM
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, _write_settings(Path(folder), url, port)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            user=pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None,  # it refuses to run as root
            start_new_session=True,
        )
        try:
            await _until_open(port)
            target = urlsplit(url)
            yield target._replace(netloc=f"{target.username}@127.0.0.1:{port}").geturl()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _write_settings(folder: Path, url: str, port: int) -> Path:
    folder.chmod(0o755)  # readable for the user it runs as
    target, path = urlsplit(url), folder / "pgbouncer.ini"
    name = target.path.lstrip("/")
    path.write_text(
        f"[databases]\n{name} = host={target.hostname} port={target.port} user={target.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 200\n"
    )
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _until_open(port: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)
