"""A server on a public address needs keys and an admin secret."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.engine import Engine, NewWorker
from holdfast.errors import Invalid
from holdfast.model.key import Kind, NewKey
from holdfast.model.loopback import is_loopback
from holdfast.server.startup_checks import dev_secret, refuse_insecure
from holdfast.settings import Settings

GOOD, SHORT = "0123456789abcdef", "0123456789abcde"
OUTSIDE = ["0.0.0.0", "::", "192.0.2.1", "jobs.example", "", "::ffff:192.0.2.1"]
INSIDE = ["127.0.0.1", "127.1.2.3", "::1", "localhost"]
SET_A_SECRET, MAKE_A_KEY = "set HOLDFAST_ADMIN_SECRET", "create a key: `holdfast keys create`"


async def complaint(engine: Engine, secret: str, host: str) -> str:
    """What it says, or nothing."""
    try:
        await refuse_insecure(engine, Settings(admin_secret=secret), host)
        return ""
    except Invalid as refused:
        return f"{refused.code}: {refused.message}"


@pytest.mark.parametrize("host", OUTSIDE)
async def test_a_public_address_requires_a_key_and_an_admin_secret(engine: Engine, host: str) -> None:
    """SEC-6: the start matrix; what is missing is said, and nothing else."""
    for secret in ("", SHORT):
        both = await complaint(engine, secret, host)
        assert both.startswith("insecure_start: ")
        assert SET_A_SECRET in both
        assert MAKE_A_KEY in both
    assert SET_A_SECRET not in await complaint(engine, GOOD, host)
    assert MAKE_A_KEY in await complaint(engine, GOOD, host)
    await engine.keys.create(NewKey(kind=Kind.ADMIN))
    assert MAKE_A_KEY in await complaint(engine, GOOD, host), "an operator's key does no work"
    await engine.keys.create(NewKey())
    assert await complaint(engine, GOOD, host) == ""
    assert MAKE_A_KEY not in await complaint(engine, SHORT, host)
    assert SET_A_SECRET in await complaint(engine, SHORT, host)


async def test_a_worker_key_is_sufficient(engine: Engine) -> None:
    await engine.workers.register_with_key(NewWorker(name="w"))
    assert await complaint(engine, GOOD, "0.0.0.0") == ""


@pytest.mark.parametrize("host", INSIDE)
async def test_loopback_requires_nothing(engine: Engine, host: str) -> None:
    assert await complaint(engine, "", host) == ""


def test_an_address_that_only_resembles_loopback_is_public() -> None:
    assert all(is_loopback(host) for host in INSIDE)
    assert not any(is_loopback(host) for host in [*OUTSIDE, "localhost.example", "127.0.0.1.example", "0177.0.0.1"])


def test_a_server_creates_a_secret_file_readable_by_its_owner_only(tmp_path: Path) -> None:
    """SEC-6: no default credentials."""
    folder = tmp_path / "data"
    secret = dev_secret(str(folder))
    assert len(secret) == 64
    assert dev_secret(str(folder)) == secret
    assert dev_secret(str(tmp_path / "other")) != secret
    assert stat.S_IMODE((folder / "admin-secret").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["admin-secret"]


def test_concurrent_starts_get_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: dev_secret(str(tmp_path)), range(32)))) == 1


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [("x" * 64, 0o644, "can be read by others"), ("", 0o600, "holds no secret"), ("\xff", 0o600, "cannot be read")],
)
def test_an_insecure_secret_file_is_rejected(tmp_path: Path, text: str, mode: int, says: str) -> None:
    path = tmp_path / "admin-secret"
    path.write_text(text, encoding="latin-1")
    path.chmod(mode)
    with pytest.raises(Invalid, match=says):
        dev_secret(str(tmp_path))


def test_without_a_writable_file_the_error_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, no folder")
    with pytest.raises(Invalid, match="set HOLDFAST_ADMIN_SECRET instead"):
        dev_secret(str(tmp_path / "data"))
