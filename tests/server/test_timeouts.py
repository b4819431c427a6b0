"""The timeouts of requests: many of them share a timer, and each ends only its own request."""

import asyncio

import pytest

from holdfast.server.http.timeouts import Timeouts


async def wait(timeouts: Timeouts, event: asyncio.Event) -> None:
    with timeouts.begin():
        await event.wait()


async def test_a_wait_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await wait(Timeouts(0.02), asyncio.Event())


async def test_requests_of_one_moment_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), 0
    call_at = loop.call_at

    def counted(*args: object, **options: object) -> object:
        nonlocal timers
        timers += 1
        return call_at(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", counted)
    timeouts, event = Timeouts(3600), asyncio.Event()
    tasks = [asyncio.create_task(wait(timeouts, event)) for _ in range(100)]
    await asyncio.sleep(0)
    event.set()
    await asyncio.gather(*tasks)
    assert timers == 1


async def test_what_ended_in_time_is_not_cancelled_later() -> None:
    timeouts, slow = Timeouts(0.02), asyncio.Event()
    with timeouts.begin():
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await wait(timeouts, slow)
    await asyncio.sleep(0)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_cancelled_request_is_no_timeout() -> None:
    task = asyncio.create_task(wait(Timeouts(3600), asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_another_error_is_passed_on() -> None:
    with pytest.raises(KeyError), Timeouts(3600).begin():
        raise KeyError
