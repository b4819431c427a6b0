"""The same request several times at once, also when it takes the last credit: each gets the same generation."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from holdfast.clock import Clock
from holdfast.engine.insert import checked
from holdfast.store.migrate import migrate
from holdfast.workloads.generation import ext
from tests.workloads.generation import ledger_engines as on
from tests.workloads.generation.steps import Service, Sets


@pytest.mark.parametrize("key", [None, "a double click"])
@pytest.mark.parametrize("only", ["starting_credits", "quota_per_day"])
async def test_a_double_click_for_the_last_one_is_one_generation(
    service: Service, generation_settings: Sets, only: str, key: str | None
) -> None:
    """R004-28, R004-29"""
    generation_settings(**{only: 1})
    for number in range(4):
        user = await service.user(f"u{number}")
        answers = await asyncio.gather(*(user.create("a lighthouse", key=key) for _ in range(3)))
        assert [answer.status_code for answer in answers] == [202] * 3
        assert len({answer.json()["generationId"] for answer in answers}) == 1


async def test_repeats_take_nothing_from_others_in_their_batch(store_url: str) -> None:
    """R004-28"""
    clock = Clock()
    await migrate(store_url, [ext])
    with on.generation_service(store_url, clock, starting_credits=2):
        engine = await on.open_engine(store_url, clock)
        new = [checked(on.generation("ann", prompt=prompt)) for prompt in ("a", "a", "b", "c")]
        first, repeat, other, refused = await engine.create_each(new)
        assert (first.id, repeat.existed, other.existed) == (repeat.id, True, False)
        assert getattr(refused, "code", "") == "insufficient_credits"
        await engine.close()


async def test_many_requests_with_repeats_are_all_accepted(service: Service) -> None:
    """Without deadlocks, which would show as 503."""
    users = [await service.user(f"u{number}") for number in range(12)]
    for user in users:
        await user.create("again")
    chance = random.Random(5)

    async def one(number: int) -> Any:
        prompt = "again" if chance.random() < 0.3 else f"prompt {number}"
        return await chance.choice(users).create(prompt)

    answers = await asyncio.gather(*(one(number) for number in range(150)))
    assert Counter(answer.status_code for answer in answers) == {202: 150}


async def test_batches_with_repeats_in_opposite_orders_are_all_accepted(store_url: str) -> None:
    clock, users = Clock(), [f"u{number}" for number in range(12)]
    await migrate(store_url, [ext])
    with on.generation_service(store_url, clock):
        engines = [await on.open_engine(store_url, clock) for _ in range(2)]
        for user in users:
            await on.create(engines[0], user)
        for round_ in range(4):
            repeats = [on.generation("x", prompt=f"{round_}"), on.generation("y", prompt=f"{round_}")]
            for repeat in repeats:
                await engines[0].create(repeat)
            batches = [
                [checked(on.generation(user)) for user in order] + [checked(repeats[place])] * 2
                for place, order in enumerate((users, users[::-1]))
            ]
            found = await asyncio.gather(
                *(engine.create_each(batch) for engine, batch in zip(engines, batches, strict=True))
            )
            assert [answer for batch in found for answer in batch if isinstance(answer, Exception)] == []
        for engine in engines:
            await engine.close()
