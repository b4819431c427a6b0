"""What a type checker sees: on `enqueue` the handler's signature without its context, and the type of the result."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from holdfast import App
from holdfast.errors import Invalid
from holdfast.lifecycle import Policy
from holdfast.sdk.options import JobOptions, Options, PolicyOptions

APP = """
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast import App, Context, JobHandle, SyncContext

app = App()


@dataclass
class Sent:
    to: str


@app.job("SEND_EMAIL", queue="mail", max_attempts=5)
async def send_email(ctx: Context, to: str, copies: int = 1) -> Sent:
    await ctx.progress(percent=50, step="render")
    return Sent(to)


@app.job()
async def plain(number: int) -> int:
    return number


@app.job(isolation="process")
def in_process(ctx: SyncContext, number: int, *, base: float = 2) -> float:
    ctx.progress(percent=50)
    return base * number


@app.job(errors={ValueError: "permanent", "E_BUSY": "throttled"}, lease_seconds=60, requires=["gpu"])
def in_thread(number: int) -> list[int]:
    return [number]


async def use(ctx: Context, sync: SyncContext) -> None:
"""

LINES = [
    # Right: nothing is said, but for what is asked.
    ('await send_email.enqueue(to="a")', ""),
    ('await send_email.enqueue("a", copies=2)', ""),
    ('send_email.enqueue_sync(to="a")', ""),
    ('await send_email.options(priority=5, delay=30).enqueue(to="a")', ""),
    ('await send_email.enqueue_many([{"to": "a"}, {"to": "b"}])', ""),
    ("await plain.enqueue(1)", ""),
    ("await in_process.enqueue(1, base=3)", ""),
    ("in_thread(1)", ""),
    ('reveal_type(await send_email.enqueue(to="a"))', "JobHandle[app.Sent]"),
    ('reveal_type(await (await send_email.enqueue(to="a")).result())', "app.Sent"),
    ('reveal_type(send_email.enqueue_sync("a").result_sync(5))', "app.Sent"),
    ("reveal_type(await (await plain.enqueue(1)).result(timeout=5))", "int"),
    ("reveal_type(await (await in_process.enqueue(1)).result())", "float"),
    ("reveal_type(await (await in_thread.options(priority=1).enqueue(1)).result())", "list[int]"),
    ("plain.options(queue='q', delay=timedelta(minutes=1), timeout=1.5, tags=('a',), requires={'gpu'})", ""),
    ("plain.options(run_at=datetime.now(UTC), idempotency_key=None, tenant='t', connection=object())", ""),
    ("plain.options(policy={'lease_seconds': 5, 'errors': {'E': 'permanent'}})", ""),
    ("app.job(backoff_base_seconds=1, isolation='process', errors={ValueError: 'permanent'})", ""),
    ("reveal_type(ctx.attempt)", "int"),
    ("sync.progress(percent=50, step='render')", ""),
    # Wrong: found before it runs.
    ("ctx.attempt = 2", "read-only"),
    ("sync.progress('half')", 'incompatible type "str"; expected "float | None"'),
    ("plain.options(dealy=3)", 'Unexpected keyword argument "dealy" for "options"'),
    ("plain.options(priority='high')", 'Argument "priority" to "options" of "Definition" has incompatible type "str"'),
    ("plain.options(delay='3s')", 'Argument "delay" to "options" of "Definition" has incompatible type "str"'),
    ("plain.options(tags='urgent')", 'Argument "tags" to "options" of "Definition" has incompatible type "str"'),
    ("plain.options(policy={'lease': 5})", 'Extra key "lease"'),
    ("plain.options(policy={'errors': {'E': 'later'}})", "incompatible type"),
    ("app.job(lease='5')", 'Unexpected keyword argument "lease" for "job"'),
    ("app.job(backoff_factor='2')", 'Argument "backoff_factor" to "job" of "Definitions" has incompatible type "str"'),
    ("app.job(isolation='vm')", 'Argument "isolation" to "job" of "Definitions" has incompatible type'),
    ("await send_email.enqueue(to=1)", 'Argument "to" to "enqueue" of "Definition" has incompatible type "int"'),
    ("await send_email.enqueue()", 'Missing positional argument "to"'),
    ('await send_email.enqueue(to="a", copy=2)', 'Unexpected keyword argument "copy"'),
    ('await send_email.enqueue("a", 1, 2)', "Too many arguments"),
    ("send_email.enqueue_sync(to=1)", 'Argument "to" to "enqueue_sync"'),
    ('await plain.enqueue("1")', 'incompatible type "str"; expected "int"'),
    ('await in_process.enqueue(number="1")', 'incompatible type "str"; expected "int"'),
    ('await in_thread.options(priority=1).enqueue("1")', 'incompatible type "str"; expected "int"'),
    ("number: str = await (await plain.enqueue(1)).result()", "Incompatible types in assignment"),
]


def test_the_typed_options_match_the_options_and_the_policy() -> None:
    assert set(get_type_hints(JobOptions)) == set(Options.__dataclass_fields__)
    assert set(get_type_hints(PolicyOptions)) == set(Policy.__struct_fields__)


@pytest.mark.parametrize(("typo", "meant"), [("dealy", "delay"), ("tag", "tags"), ("idempotency", "idempotency_key")])
def test_an_unknown_option_suggests_the_nearest_at_run_time(typo: str, meant: str) -> None:
    app = App()

    @app.job()
    async def plain() -> None: ...

    with pytest.raises(Invalid, match=f"unknown option '{typo}'; did you mean '{meant}'?"):
        plain.options(**{typo: 1})  # type: ignore[misc]


@pytest.mark.slow
def test_a_type_checker_sees_the_handlers_signature(tmp_path: Path) -> None:
    said = what_mypy_says(tmp_path)
    assert {place: said[place] for place in said if place < 0} == {}  # about the definitions themselves
    assert [(line, said[place]) for place, (line, expected) in enumerate(LINES) if not expected and place in said] == []
    for place, (line, expected) in enumerate(LINES):
        assert expected in said.get(place, ""), f"{line}: {said.get(place)}"


def what_mypy_says(folder: Path) -> dict[int, str]:
    """About each line, by its place in the list."""
    (folder / "app.py").write_text(APP + "".join(f"    {line}\n" for line, _ in LINES))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", "--hide-error-context", "app.py"],
        cwd=folder,
        env={"MYPYPATH": str(Path(__file__).parents[2] / "src")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    first = APP.count("\n") + 1
    said: dict[int, str] = {}
    for match in re.finditer(r"^app\.py:(\d+): (.*)$", checked.stdout, re.MULTILINE):
        place = int(match[1]) - first
        said[place] = f"{said.get(place, '')}{match[2]}\n"
    return said
