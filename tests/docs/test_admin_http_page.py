"""What the page on operating over HTTP has one type at a shell does what the page says."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.server.app import ROUTES
from tests.docs.pages import PAGES
from tests.server.admin_client import dead, operator
from tests.server.steps import SECRET, serving

PAGE = "docs/operate/admin-api.md"
TYPED = re.findall(r"(?ms)^```sh\n(.*?)^```$(?:\s*^```json\n(.*?)^```$)?", PAGES[PAGE])


async def shell(script: str, folder: Path, **variables: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", script),
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, f"{script}\n{err.decode()}"
    return out.decode()


def check(said: Any, seen: Any, where: str = "answer") -> None:
    """All that the page shows is there, and of that kind."""
    if isinstance(said, dict):
        for name, value in said.items():
            assert name in seen, f"{where} has no {name}"
            check(value, seen[name], f"{where}.{name}")
    elif isinstance(said, list):
        assert seen, f"{where} is empty"
        check(said[0], seen[0], f"{where}[0]")
    elif said is not None and seen is not None:
        assert type(seen) is type(said), where


@pytest.mark.slow
async def test_the_commands_print_the_documented_output(fresh_sqlite_url: str, tmp_path: Path) -> None:
    async with serving(fresh_sqlite_url) as served:
        worker = (await served.register(name="encoder-1"))["workerId"]
        job, *others = [await dead(served.engine, payload={"film": 7}) for _ in range(3)]
        first, *rest = TYPED
        begin = first[0].replace("http://127.0.0.1:8080", served.url)
        for script, answer in rest:
            seen = await shell(begin + script, tmp_path, HOLDFAST_ADMIN_SECRET=SECRET, JOB=job, WORKER=worker)
            if answer:
                check(json.loads(answer), json.loads(seen))
        for other in others:
            assert (await operator(served).get(f"/jobs/{other}"))["redrivenAs"]
        assert (await operator(served).get("/audit/verify"))["valid"] is True


def test_every_route_that_the_page_names_exists() -> None:
    named = re.findall(r"`(GET|POST|PUT|DELETE) (/[^?`]*)", PAGES[PAGE])
    known = {(route.method, re.sub(r"_(\w)", lambda found: found[1].upper(), route.path)) for route in ROUTES}
    assert len(named) >= 8
    assert {(method, f"/api/admin{path}") for method, path in named} <= known
