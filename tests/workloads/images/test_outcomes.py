"""What clients, operators and the metric see of the errors of processing."""

from typing import Any

import pytest

from holdfast.errors import LeaseLost, StorageUnavailable
from holdfast.workloads.images import faults
from holdfast.workloads.images.extension import processing_errors
from holdfast.workloads.images.hooks import follow, shown_error
from holdfast.workloads.images.outcomes import counted
from tests.workloads.images.steps import Service, picture


def counts() -> dict[str, float]:
    codes = ("lease_lost", "LeaseLost", "internal_error", "ZeroDivisionError", "storage_unavailable")
    return {code: processing_errors.value(code) or 0 for code in codes}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageUnavailable("gone"), "storage_unavailable"),
        (ZeroDivisionError("a secret"), "internal_error"),
        (LeaseLost("another worker has it"), None),
    ],
)
def test_errors_are_counted_by_the_code_that_clients_see(error: Exception, code: str | None) -> None:
    before = counts()
    with pytest.raises(type(error)), counted():
        raise error
    risen = {name for name, count in counts().items() if count != before[name]}
    assert risen == ({code} if code else set())


@pytest.mark.parametrize("code", faults.MESSAGES)
def test_every_error_that_the_service_knows_is_shown(code: str) -> None:
    shown = shown_error({"code": code, "message": "http://storage.internal failed"})
    assert shown["code"] == code
    assert code in faults.OF_IMAGE or shown["message"] == faults.MESSAGES[code]


def test_of_others_clients_see_that_there_was_one() -> None:
    shown = {"code": "internal_error", "message": "the image could not be processed"}
    assert shown_error({"code": "ZeroDivisionError", "message": "a secret"}) == shown_error(None) == shown


async def test_the_loss_of_its_worker_is_shown(service: Service) -> None:
    engine = service.served.engine
    accepted = await service.upload(picture())
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker)
    await engine.fail(worker, lease.id, lease.token, "timeout_soft")
    image = await service.image(accepted["imageId"])
    message = "the worker that processed the image was lost"
    assert (image["status"], image["error"]) == ("failed_retryable", {"code": "timeout_soft", "message": message})


@pytest.mark.parametrize("code", ["E_CRASHED", "E_CPU_LIMIT", "poison", "timeout"])
async def test_a_killed_process_is_counted_when_its_failure_is_committed(service: Service, code: str) -> None:
    engine = service.served.engine
    accepted = await service.upload(picture())
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker)
    before = processing_errors.value(code) or 0
    await engine.fail(worker, lease.id, lease.token, code)
    assert processing_errors.value(code) == before + 1
    assert (await service.image(accepted["imageId"]))["error"]["code"] == code
    job = await engine.reads.get(lease.id)

    async def roll_back(tx: Any) -> None:
        await follow(tx, "fail", job)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await engine.store.write(roll_back)
    assert (job.reason, processing_errors.value(code)) == (code, before + 1)
