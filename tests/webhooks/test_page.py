"""docs/guides/webhooks.md does what it says: what is typed there works, and what checks a signature there checks it."""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from holdfast.clock import Clock
from holdfast.engine.webhooks.alerts import KINDS
from holdfast.ids import Ids
from holdfast.model.webhook import EVENTS, SECRET_BITS, secret_of
from holdfast.server.app import ROUTES
from holdfast.webhooks.signing import headers
from tests.docs.pages import PAGES, blocks, first_cells
from tests.server.steps import SECRET, Served, serving
from tests.webhooks.receiver import Receiver

PAGE = "docs/guides/webhooks.md"
BODY = '{"type":"job.completed","data":{"jobType":"Übersetzung"}}'.encode()

Check = Callable[[str, dict[str, str], bytes], bool]


@pytest.fixture
def in_python() -> Check:
    [block] = [block for block in blocks(PAGE, "python") if block.file == "verify.py"]
    names: dict[str, Check] = {}
    exec(block.text, names)
    return names["is_genuine"]


@pytest.fixture
def in_javascript(tmp_path: Path) -> Check:
    [block] = blocks(PAGE, "javascript")
    (tmp_path / "verify.mjs").write_text(block.text, encoding="utf-8")
    (tmp_path / "ask.mjs").write_text(
        'import { isGenuine } from "./verify.mjs";\n'
        "const { secret, headers, body } = JSON.parse(process.argv[2]);\n"
        "console.log(isGenuine(secret, headers, Buffer.from(body)));\n",
        encoding="utf-8",
    )

    def check(secret: str, headers: dict[str, str], body: bytes) -> bool:
        asked = json.dumps({"secret": secret, "headers": headers, "body": body.decode()})
        done = subprocess.run(
            ["node", "ask.mjs", asked], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip() == "true"

    return check


def signed_by_another(secret: str, body: bytes) -> dict[str, str]:
    now = Clock().now()
    signature = Webhook(secret).sign("msg_1", now, body.decode())
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}


@pytest.mark.parametrize("language", ["in_python", "in_javascript"])
def test_the_examples_verify_signatures(language: str, request: pytest.FixtureRequest) -> None:
    """SEC-29: they agree with us and with another's implementation."""
    check: Check = request.getfixturevalue(language)
    secret, other = (secret_of(Ids().bits(SECRET_BITS)) for _ in range(2))
    ours = headers("019b", Clock().now(), BODY, [other, secret])
    assert check(secret, ours, BODY)
    assert check(secret, signed_by_another(secret, BODY), BODY)
    assert not check(secret, ours, BODY + b" ")
    assert not check(secret, ours | {"webhook-id": "019c"}, BODY)
    assert not check(secret, signed_by_another(other, BODY), BODY)
    assert not check(secret, {"webhook-timestamp": "yesterday"}, BODY)
    old = str(int(ours["webhook-timestamp"]) - 400)
    assert not check(secret, signed_by_another(secret, BODY) | {"webhook-timestamp": old}, BODY)


@pytest.fixture
async def served(fresh_sqlite_url: str) -> AsyncIterator[Served]:
    async with serving(fresh_sqlite_url, unsafe_private_webhooks=True) as served:
        yield served


async def test_the_commands_on_the_page_work(served: Served, receiver: Receiver, tmp_path: Path) -> None:
    variables = {"HOLDFAST_ADMIN_SECRET": SECRET, "PATH": "/usr/bin:/bin"}
    begin = next(blocks("docs/operate/admin-api.md", "sh")).text.replace("http://127.0.0.1:8080", served.url)

    async def type_in(command: str) -> str:
        process = await asyncio.create_subprocess_shell(
            begin + command.replace("https://example.com/hook", receiver.url),
            cwd=tmp_path,
            env=variables,
            stdout=asyncio.subprocess.PIPE,
        )
        return (await process.communicate())[0].decode()

    commands = [block.text for block in blocks(PAGE, "sh") if "$API" in block.text]
    [subscribe, *others] = commands
    webhook = json.loads(await type_in(subscribe))["webhook"]["webhookId"]
    variables["WEBHOOK"] = webhook
    variables["DELIVERY"] = (await served.server.deliverer.test(webhook)).id
    for command in others:
        answered = await type_in(command)
        assert "webhookId" in answered, answered
    assert len(others) == 3
    await receiver.has(2)


def test_every_route_event_and_alert_is_on_the_page() -> None:
    page = PAGES[PAGE]
    for route in ROUTES:
        if (
            route.path.startswith(("/api/admin/webhooks", "/api/admin/deliveries"))
            and route.path != "/api/admin/webhooks"
        ):
            assert f"{route.method} {re.sub(r'{.*?}', '{id}', route.path)}" in page
    assert set(EVENTS) <= set(first_cells(page))
    assert all(f"`{kind}`" in page for kind in KINDS)
