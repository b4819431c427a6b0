"""A server on this machine, and a client that may request it."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.net import EgressRules, GuardedClient
from tests.webhooks.receiver import Receiver, receiving

NAME = "api.example.com"


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def local(**rules: object) -> EgressRules:
    """Every name is this machine, and only this machine may be requested."""
    return EgressRules(**{"allow": ["127.0.0.1"], "ports": None, "resolver": here, **rules})  # type: ignore[arg-type]


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiving() as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[GuardedClient]:
    async with GuardedClient(local()) as client:
        yield client


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for NAME."""
    folder = tmp_path_factory.mktemp("tls")
    options = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}"
    files = ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *options.split(), *files], cwd=folder, check=True, capture_output=True)
    return folder
