"""Two apps on one database that declare the same job type differently: both are warned, and one declaration wins."""

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.engine import Engine
from holdfast.engine.declare import DeclarationConflict, contradictions
from holdfast.model import JobType, NewJob
from tests.cli.processes import holdfast
from tests.engine.steps import ask

SHOP, BANK = "shop.tasks", "bank.tasks"
OF_SHOP, OF_BANK = JobType(name="send", queue="shop"), JobType(name="send", queue="bank", policy={"max_attempts": 9})


@pytest.fixture
async def shop_works(engine: Engine) -> Engine:
    """The shop has declared its type and runs a worker."""
    await engine.job_types.declare(OF_SHOP, JobType(name="pack"), app=SHOP)
    await engine.workers.register(name="shop-1", metadata={"app": SHOP})
    return engine


async def written(engine: Engine) -> Any:
    [row] = await ask(engine, "SELECT updated_at, queue, declared_by FROM holdfast_job_types WHERE name = 'send'")
    return tuple(row)


async def test_the_declaration_of_the_app_with_live_workers_wins_and_the_other_is_warned(
    shop_works: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine, before = shop_works, await written(shop_works)
    caplog.set_level(logging.WARNING)
    [found] = await engine.job_types.declare(OF_BANK, app=BANK)
    assert isinstance(found, DeclarationConflict)
    assert not found.severe
    for part in (SHOP, BANK, "'send'", "queue: 'shop' and 'bank'", "max_attempts"):
        assert part in found.text
        assert part in caplog.text
    job = await engine.reads.get((await engine.create(NewJob(type="send"))).id)
    assert job.queue == "shop"

    for declared, app in ((OF_SHOP, SHOP), (OF_BANK, BANK), (OF_SHOP, SHOP)):  # each starts again
        await engine.job_types.declare(declared, app=app)
    assert await written(engine) == before


async def test_the_declaration_of_a_starting_app_replaces_that_of_an_app_without_workers(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """As when an app moved to another module, or only enqueues."""
    caplog.set_level(logging.WARNING)
    await engine.job_types.declare(OF_SHOP, app=SHOP)
    assert await engine.job_types.declare(OF_BANK, app=BANK) == []
    assert (await written(engine))[1:] == ("bank", BANK)
    assert SHOP in caplog.text


async def test_an_upgraded_app_replaces_its_older_declaration(
    shop_works: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for declared in (JobType(name="send", queue="fast"), OF_SHOP):  # and back again: a roll-back
        assert await shop_works.job_types.declare(declared, app=SHOP) == []
        assert (await written(shop_works))[1] == declared.queue
    assert "queue: 'shop' before, 'fast' now" in caplog.text


async def test_the_warning_names_an_option_that_only_one_app_sets(shop_works: Engine) -> None:
    """The message read "0.1, not not set"."""
    await shop_works.job_types.declare(JobType(name="mail", policy={"backoff_base_seconds": 0.1}), app=SHOP)
    [found] = await shop_works.job_types.declare(JobType(name="mail"), app=BANK)
    assert found.differs == ["backoff_base_seconds: 0.1 and not set"]


async def test_two_apps_with_equal_declarations_cause_no_warning(shop_works: Engine) -> None:
    await shop_works.job_types.declare(OF_BANK, app=BANK)
    assert await shop_works.job_types.declare(OF_SHOP, app=BANK) == []
    [row] = await ask(shop_works, "SELECT conflict FROM holdfast_job_types WHERE name = 'send'")
    assert row["conflict"] is None, "the bank has come round"


async def test_a_conflict_with_a_removed_app_is_cleared_at_the_next_start(
    shop_works: Engine,
) -> None:
    await shop_works.job_types.declare(OF_BANK, app=BANK)
    assert len(await shop_works.store.read(contradictions)) == 1
    await shop_works.job_types.declare(OF_SHOP, app=SHOP)
    assert await shop_works.store.read(contradictions) == []


APP_FILE = """
from holdfast import App

app = App()

@app.job()
async def send({parameters}) -> None: ...
"""


async def test_a_worker_whose_handler_conflicts_with_a_live_app_does_not_start(
    engine: Engine, store_url: str, tmp_path: Path
) -> None:
    shop = App(name=SHOP)

    @shop.job()
    async def send(to: str) -> None: ...

    await engine.job_types.declare(send.handler.job_type, app=shop.name)
    await engine.workers.register(name="shop-1", metadata={"app": SHOP})
    (tmp_path / "bank.py").write_text(APP_FILE.format(parameters="amount: int"))
    for command in ("worker", "serve"):
        done = holdfast(command, "--app", "bank:app", folder=tmp_path, url=store_url)
        assert done.returncode != 0
        for part in (SHOP, "'bank'", "'send'", "different payload schemas", "App(name=...)"):
            assert part in done.stderr
    doctor = holdfast("doctor", "--json", folder=tmp_path, url=store_url)
    assert "'bank'" in doctor.stdout
    assert SHOP in doctor.stdout


def test_the_app_name_defaults_to_its_module() -> None:
    assert App().name == __name__
    assert App(name="shop").name == "shop"
