"""Real `holdfast worker` commands of one app or another on one database."""

import asyncio
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.cli.processes import environment
from tests.worker.real_processes.harness import MARK, ROOT, Command

Starts = Callable[..., Awaitable[Command]]
SETTINGS = {"HOLDFAST_SWEEP_SECONDS": "1", "HOLDFAST_STARTUP_GRACE_SECONDS": "1", "HOLDFAST_STOP_GRACE_SECONDS": "2"}


@asynccontextmanager
async def workers(url: str, folder: Path) -> AsyncIterator[Starts]:
    commands: list[Command] = []

    async def start(app: str) -> Command:
        mark = secrets.token_hex(8)
        log = folder / f"log-{mark}"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.worker.real_processes.dying_command", "worker", "--app", app),
                cwd=ROOT,
                env=environment(HOLDFAST_DATABASE_URL=url, **SETTINGS, **{MARK: mark}),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        commands.append(Command(process, mark, log))
        await commands[-1].ready()
        return commands[-1]

    try:
        yield start
    finally:
        for command in commands:
            await command.close()
            print(f"--- the log of command {command.pid}:\n{command.log}")


def kill(command: Command) -> None:
    """All of its processes at once, so that none of them has a last word."""
    command.signal(signal.SIGKILL, command.pids())
