"""Many requests at once for the last credit: one wins, the others are refused, and no account is ever negative.

R004-9, R004-12, S10, S11, K39.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.model import Lease
from holdfast.model.reports import Complete, Fail
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.hooks import RUN
from holdfast.workloads.generation.service import app
from tests.cli.processes import environment
from tests.server.steps import serving
from tests.worker.real_processes.harness import ROOT
from tests.workloads.generation import ledger_engines as on
from tests.workloads.generation.ledger_rush import rush
from tests.workloads.generation.steps import Service, Sets

MANY = 200
PROCESSES = 4
# The settings under which one request of many is accepted, the code of the others, and their audit entry.
LAST = {
    "credit": ({"starting_credits": 1}, "insufficient_credits", "INSUFFICIENT_CREDITS"),
    "quota of the day": ({"quota_per_day": 1}, "quota_exceeded", "QUOTA_EXCEEDED"),
    "quota of the month": ({"quota_per_month": 1}, "quota_exceeded", "QUOTA_EXCEEDED"),
}


@asynccontextmanager
async def engines(url: str, number: int, clock: Clock, **settings: Any) -> AsyncIterator[list[Engine]]:
    await migrate(url, [ext])
    with on.generation_service(url, clock, **settings):
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(on.opened(url, clock)) for _ in range(number)]


async def audited(engine: Engine) -> Counter[str]:
    """The entries of the service by action, in a log that verifies."""
    assert (await engine.audit.verify()).wrong is None
    lines = (await engine.audit.page(limit=500)).lines
    return Counter(line.action for line in lines if line.actor == "extension generation")


async def one_has_won(engine: Engine, action: str) -> None:
    books = await on.check_books(engine, "after the rush", cost=1)
    assert (len(books.jobs), len(books.requests)) == (1, 1)
    [account] = books.accounts
    assert (account["reserved"], account["day_images"]) == (1, 1)
    assert [row["kind"] for row in books.entries] == ["grant", "reserve"]
    assert await audited(engine) == {action: MANY - 1}


@pytest.mark.parametrize("what", ["credit", "quota of the day"])
async def test_of_200_requests_over_http_for_the_last_one_wins(
    service: Service, generation_settings: Sets, what: str
) -> None:
    """The others get 402, or 429, and one audit entry each."""
    settings, code, action = LAST[what]
    generation_settings(**settings)
    async with serving(service.database_url, app=app, clock=service.clock) as second:
        doors = [service.http, second.http]

        async def post(number: int) -> tuple[int, str]:
            body = {"prompt": f"a lighthouse {number}", "width": 64, "height": 64}
            answer = await doors[number % 2].post("/generations", json=body)
            return answer.status_code, answer.json().get("code", "")

        answers = Counter(await asyncio.gather(*(post(number) for number in range(MANY))))
    status = 402 if what == "credit" else 429
    assert answers == {(202, ""): 1, (status, code): MANY - 1}
    await one_has_won(service.served.engine, action)


@pytest.mark.parametrize("what", LAST)
async def test_of_200_requests_to_several_engines_for_the_last_one_wins(
    store_url: str, clock: MovableClock, what: str
) -> None:
    settings, code, action = LAST[what]
    async with engines(store_url, 4, clock, **settings) as four:
        assert await rush(four, ["ann"] * MANY) == {"created for ann": 1, code: MANY - 1}
        await one_has_won(four[0], action)


@pytest.mark.parametrize("what", ["credit", "quota of the day"])
async def test_of_200_requests_of_several_processes_for_the_last_one_wins(store_url: str, what: str) -> None:
    settings, code, action = LAST[what]
    async with engines(store_url, 1, Clock(), **settings) as [engine]:
        seen = await rush_of_processes(store_url, settings, [["ann"] * (MANY // PROCESSES)] * PROCESSES)
        assert seen == {"created for ann": 1, code: MANY - 1}
        await one_has_won(engine, action)


async def rush_of_processes(url: str, settings: dict[str, int], users: list[list[str]]) -> Counter[str]:
    """One process for each list of users; they begin when all are ready."""
    command = [sys.executable, "-m", "tests.workloads.generation.ledger_rush", url, json.dumps(settings)]
    pipe = asyncio.subprocess.PIPE
    rushing = [
        await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment(), stdin=pipe, stdout=pipe)
        for _ in users
    ]
    try:
        for process in rushing:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        said = await asyncio.gather(
            *(process.communicate(json.dumps(of).encode() + b"\n") for process, of in zip(rushing, users, strict=True))
        )
    finally:
        for process in rushing:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return sum((Counter(json.loads(out)) for out, _ in said), Counter())


async def test_requests_of_two_users_in_several_processes_do_not_disturb_each_other(store_url: str) -> None:
    """Each gets what the credits allow, and nobody an error."""
    settings = {"starting_credits": 20}
    async with engines(store_url, 1, Clock(), **settings) as [engine]:
        orders = [["ann", "bob"] * 15, ["bob", "ann"] * 15] * 2
        assert await rush_of_processes(store_url, settings, orders) == {
            "created for ann": 20,
            "created for bob": 20,
            "insufficient_credits": 80,
        }
        await on.check_books(engine, "after the rush", cost=1)


async def test_last_credits_are_shared_out_to_requests_of_different_size(store_url: str, clock: MovableClock) -> None:
    async with engines(store_url, 3, clock, starting_credits=10) as three:
        jobs = [on.generation(count=1 + number % 4) for number in range(60)]
        answers = await asyncio.gather(
            *(three[number % 3].create(job) for number, job in enumerate(jobs)), return_exceptions=True
        )
        accepted = [job.payload["count"] for job, answer in zip(jobs, answers, strict=True) if not failed(answer)]
        assert sum(accepted) == 10
        assert {answer.code for answer in answers if isinstance(answer, HoldfastError)} == {"insufficient_credits"}
        assert await on.has(three[0]) == (10, 10)
        await on.check_books(three[0], "after the rush", cost=1)


def failed(answer: object) -> bool:
    return isinstance(answer, BaseException)


# -- batches in opposite orders ----------------------------------------------------------------------------------

ROUNDS, PAIRS, USERS = 3, 4, ["ann", "bob"]


async def test_batches_of_the_same_users_in_opposite_orders_all_end(store_url: str, clock: MovableClock) -> None:
    """Two engines complete and fail jobs of two users, each in the order that meets the other's, while a third creates
    more and grants. Accounts are locked in one order, so none of them waits for another one that waits for it."""
    async with engines(store_url, 3, clock, starting_credits=1000) as three:
        workers = [await on.worker(engine) for engine in three[:2]]
        for number in range(ROUNDS):
            users = USERS * PAIRS
            held = [
                await take(engine, worker, order)
                for engine, worker, order in zip(three[:2], workers, (users, users[::-1]), strict=True)
            ]
            await asyncio.gather(
                end_all(three[0], workers[0], held[0]),
                end_all(three[1], workers[1], held[1]),
                *(create_both(three[2], order) for order in (USERS, USERS[::-1])),
                *(
                    on.grant(engine, user, 1, f"{number} {place} {user}")
                    for place, engine in enumerate(three)
                    for user in USERS
                ),
            )
            await on.check_books(three[0], f"round {number}", cost=1)
        books = await on.read_books(three[0])
        states = Counter(job["state"] for job in books.jobs)
        assert states == {"succeeded": ROUNDS * PAIRS * 2, "dead": ROUNDS * PAIRS * 2, "queued": ROUNDS * 4}
        granted = [row for row in books.entries if row["reason"] == "a gift"]
        assert len(granted) == ROUNDS * 6


async def take(engine: Engine, worker: str, users: list[str]) -> list[Lease]:
    """Running generations of these users, with ids in that order."""
    queue = f"of {worker}"
    for user in users:
        await engine.create(on.generation(user, queue=queue))
    leases = await engine.claim(worker, types=[RUN], queues=[queue], limit=len(users))
    assert [lease.payload["user"] for lease in sorted(leases, key=lambda lease: lease.id)] == users
    return leases


async def end_all(engine: Engine, worker: str, leases: list[Lease]) -> None:
    """Half of them fail, half succeed without an image."""
    half = len(leases) // 2
    done = await engine.complete_many(worker, [Complete(lease.id, lease.token, {}) for lease in leases[:half]])
    lost = [Fail(id=lease.id, token=lease.token, code="E", permanent=True) for lease in leases[half:]]
    for answer in (*done, *await engine.fail_many(worker, lost)):
        assert not isinstance(answer, HoldfastError), answer


async def create_both(engine: Engine, users: list[str]) -> None:
    await engine.create_many([on.generation(user, queue="later") for user in users])
