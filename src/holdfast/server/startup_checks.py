"""Security checks at start: keys and an admin secret are required on addresses that are not loopback."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast.engine import Engine
from holdfast.errors import Invalid
from holdfast.ids import Ids
from holdfast.model.key import SECRET_BITS, Kind
from holdfast.model.loopback import is_loopback
from holdfast.settings import Settings

SECRET_CHARS_MIN = 16
_FILE = "admin-secret"


async def refuse_insecure(engine: Engine, settings: Settings, host: str) -> None:
    """Other addresses than loopback need keys and an admin secret that is long enough."""
    if is_loopback(host):
        return
    missing = []
    if len(settings.admin_secret) < SECRET_CHARS_MIN:
        missing.append(
            f"set HOLDFAST_ADMIN_SECRET (or HOLDFAST_ADMIN_SECRET_FILE) to at least {SECRET_CHARS_MIN} characters, "
            "such as `openssl rand -hex 32` prints"
        )
    if not await engine.keys.kinds() & {Kind.CLIENT, Kind.WORKER}:
        missing.append("create a key: `holdfast keys create` for a client, `holdfast workers register` for a worker")
    if missing:
        raise Invalid(
            f"{host} can be reached from other machines, and this server would be open to them; "
            f"{'; and '.join(missing)}. Or listen on 127.0.0.1",
            code="insecure_start",
        )


def dev_secret(data_dir: str) -> str:
    """The generated admin secret of a local server, in a file that only its owner can read."""
    path = Path(data_dir) / _FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            _write_new(path, f"{Ids().bits(SECRET_BITS):064x}")
        mode, secret = path.stat().st_mode, path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_file(path, f"cannot be read or made ({error}); set HOLDFAST_ADMIN_SECRET instead") from None
    if mode & 0o077:
        raise _bad_file(path, "can be read by others; `chmod 600` it, or delete it to get a new one")
    if len(secret) < SECRET_CHARS_MIN:
        raise _bad_file(path, "holds no secret; delete it to get a new one")
    return secret


def _bad_file(path: Path, why: str) -> Invalid:
    return Invalid(f"{path}, which keeps the admin secret, {why}", code="admin_secret_file")


def _write_new(path: Path, text: str) -> None:
    """Atomically: of two servers that start at once, both read the same secret."""
    draft = path.with_name(f"{path.name}.{Ids().bits(64):x}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{text}\n")
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
