"""An attempt stages, publishes and dies at every point; a stale one never harms a newer one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest

from holdfast.clock import MovableClock
from holdfast.errors import Invalid, LeaseLost, ObjectNotFound, OutcomeUnknown
from holdfast.storage import Staged, StaleStaging, Storage
from holdfast.storage.staging import STAGING

JOB = "019b76da-a800-7002-ba38-97650ed90475"


class Lease:
    """Held by one epoch at a time."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def fence(self, epoch: int) -> Callable[[], Awaitable[bool]]:
        async def held() -> bool:
            return self.epoch == epoch

        return held


async def holds() -> bool:
    return True


async def live(
    storage: Storage, epoch: int, fence: Callable[[], Awaitable[object]], then: BaseException | None = None
) -> dict[str, str]:
    """An attempt that stages two objects and publishes them, and may end badly after that."""
    async with storage.staging(JOB, epoch) as staged:
        for name in "ab":
            await staged.put(name, f"of {epoch}".encode())
        published = await staged.publish("results", fence=fence)
        if then is not None:
            raise then
        staged.confirm()
    return published


async def everything(storage: Storage) -> list[str]:
    return sorted([info.key async for info in storage._objects.list("")]) + await staged_keys(storage)


async def staged_keys(storage: Storage) -> list[str]:
    return sorted([info.key async for info in storage._objects.list(STAGING)])


async def visible(storage: Storage) -> list[str]:
    return sorted([info.key async for info in storage.list()])


@pytest.fixture
def now(clock: MovableClock) -> MovableClock:
    """The store has a clock of its own: ours begins a minute behind it."""
    clock.advance((datetime.now(UTC) - clock.now()).total_seconds() - 60)
    return clock


async def test_staged_objects_are_visible_after_publishing(storage: Storage) -> None:
    async with storage.staging(JOB, 3) as staged:
        await staged.put("720p/index.m3u8", b"list", content_type="text/plain", metadata={"n": "1"})
        assert await (await staged.get("720p/index.m3u8")).read() == b"list"
        assert await visible(storage) == []
        published = await staged.publish("videos", fence=holds)
        staged.confirm()
    key = f"videos/{JOB}-3/720p/index.m3u8"
    assert published == {"720p/index.m3u8": key}
    assert await visible(storage) == [key]
    info = await storage.head(key)
    assert (await storage.read(key), info.content_type, dict(info.metadata)) == (b"list", "text/plain", {"n": "1"})
    assert await staged_keys(storage) == []


async def test_a_lost_lease_publishes_nothing(storage: Storage) -> None:
    lease = Lease(epoch=2)
    with pytest.raises(LeaseLost, match="nothing is published"):
        await live(storage, 1, lease.fence(1))
    assert await everything(storage) == []


async def test_a_lease_lost_during_the_copy_publishes_nothing(storage: Storage) -> None:
    answers = iter([True, False])

    async def fence() -> bool:
        return next(answers)

    with pytest.raises(LeaseLost):
        await live(storage, 1, fence)
    assert await visible(storage) == []


async def test_published_objects_stay_when_the_lease_is_lost_later(storage: Storage) -> None:
    """It may be recorded."""
    answers = iter([True, True, True, False])

    async def fence() -> bool:
        return next(answers)

    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"1")
        first = await staged.publish("results", fence=fence)
        await staged.put("b", b"2")
        with pytest.raises(LeaseLost):
            await staged.publish("results", fence=fence)
    assert await visible(storage) == [first["a"]]


async def test_an_error_of_the_fence_is_raised(storage: Storage) -> None:
    async def fence() -> None:
        raise LeaseLost("it is with another worker")

    with pytest.raises(LeaseLost, match="another worker"):
        await live(storage, 1, fence)
    assert await everything(storage) == []


async def test_a_fence_may_be_a_sync_function(storage: Storage) -> None:
    """`ctx.progress` of a handler in a thread is not."""
    answers = iter([None, None, None, False])
    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"x")
        published = await staged.publish("results", fence=lambda: next(answers))
        await staged.put("b", b"x")
        with pytest.raises(LeaseLost):
            await staged.publish("results", fence=lambda: next(answers))
    assert await visible(storage) == list(published.values())


async def test_a_stale_attempt_never_overwrites_objects_of_a_newer_one(
    storage: Storage,
) -> None:
    """It passed its first check, slept through the whole life of its successor, and goes on."""
    recorded: dict[str, str] = {}
    lease = Lease(epoch=1)

    async def fence() -> bool:
        if lease.epoch == 2:
            return False
        lease.epoch = 2
        recorded.update(await live(storage, 2, lease.fence(2)))
        return True

    with pytest.raises(LeaseLost):
        await live(storage, 1, fence)
    assert await visible(storage) == sorted(recorded.values()) == [f"results/{JOB}-2/{name}" for name in "ab"]
    assert await storage.read(recorded["a"]) == b"of 2"


async def test_staged_objects_of_attempts_are_isolated(storage: Storage) -> None:
    async with storage.staging(JOB, 1) as one, storage.staging(JOB, 2) as two:
        await one.put("a", b"one")
        await two.put("a", b"two")
        assert await (await one.get("a")).read() == b"one"
    assert await staged_keys(storage) == []


async def test_an_attempt_can_publish_several_times(storage: Storage) -> None:
    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"1")
        await staged.publish("results", fence=holds)
        await staged.put("b", b"2")
        published = await staged.publish("results", fence=holds)
    assert await visible(storage) == sorted(published.values()) == [f"results/{JOB}-1/{name}" for name in "ab"]


@pytest.mark.parametrize("error", [OutcomeUnknown("the answer was lost"), asyncio.CancelledError()])
async def test_published_objects_stay_when_the_outcome_of_the_commit_is_unknown(
    storage: Storage, error: BaseException, now: MovableClock
) -> None:
    """A sweep asks the database later, and deletes only what that does not know."""
    with pytest.raises(type(error)):
        await live(storage, 1, holds, then=error)
    published = {name: f"results/{JOB}-1/{name}" for name in "ab"}
    assert await visible(storage) == sorted(published.values())
    [left] = await stale_after(storage, now)
    assert (left.job_id, left.epoch, left.published) == (JOB, 1, tuple(published.values()))

    async def recorded(key: str) -> bool:
        return key == published["a"]

    assert await storage.sweep(3600, recorded=recorded) == 1
    assert await visible(storage) == [published["a"]]
    assert await staged_keys(storage) == []
    assert await storage.sweep(3600, recorded=recorded) == 0


async def test_published_objects_of_a_job_that_never_completed_are_swept(storage: Storage, now: MovableClock) -> None:
    """The block ends well, the handler returns the keys, and the report is refused: the lease was lost meanwhile."""
    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"x")
        [key] = (await staged.publish("results", fence=holds)).values()
    asked: list[str] = []

    async def recorded(key: str) -> bool:
        asked.append(key)
        return False

    [left] = await stale_after(storage, now)
    assert left.published == (key,)
    assert await storage.sweep(3600, recorded=recorded) == 1
    assert asked == [key]
    assert await everything(storage) == []


async def test_objects_published_after_a_confirmation_are_checked_again(storage: Storage, now: MovableClock) -> None:
    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"x")
        await staged.publish("results", fence=holds)
        staged.confirm()
        await staged.put("b", b"x")
        await staged.publish("results", fence=holds)
    [left] = await stale_after(storage, now)
    assert left.published == tuple(f"results/{JOB}-1/{name}" for name in "ab")


async def test_a_failed_copy_raises_its_own_error(storage: Storage) -> None:
    async with storage.staging(JOB, 1) as staged:
        for n in range(9):
            await staged.put(str(n), b"x")
        await storage._objects.delete([f"{staged.prefix}/data/5"])
        with pytest.raises(ObjectNotFound, match="data/5"):
            await staged.publish("results", fence=holds)


async def stale_after(storage: Storage, now: MovableClock, seconds: float = 7200) -> list[StaleStaging]:
    now.advance(seconds)
    return await storage.stale_staging(3600)


async def die(storage: Storage, epoch: int, *, publish: bool) -> dict[str, str]:
    """As a process does that is killed: nothing is cleaned up."""
    staged = Staged(storage._objects, JOB, epoch)
    await staged.put("a", b"12345")
    await staged.put("b", b"123")
    return await staged.publish("results", fence=holds) if publish else {}


async def test_old_staged_objects_of_dead_attempts_are_swept(storage: Storage, now: MovableClock) -> None:
    await die(storage, 1, publish=False)
    published = await die(storage, 2, publish=True)
    asked: list[str] = []

    async def recorded(key: str) -> bool:
        asked.append(key)
        return False

    assert await storage.stale_staging(3600) == []
    assert await storage.sweep(3600, recorded=recorded) == 0
    assert len(await staged_keys(storage)) == 5
    one, two = sorted(await stale_after(storage, now), key=lambda left: left.epoch)
    assert (one.job_id, one.epoch, len(one.keys), one.size, one.published) == (JOB, 1, 2, 8, ())
    assert (two.epoch, len(two.keys), two.published) == (2, 3, tuple(published.values()))
    assert two.modified > now.now().replace(year=2000)
    assert await storage.sweep(3600, recorded=recorded) == 2
    assert sorted(asked) == sorted(published.values())
    assert await everything(storage) == []


async def test_a_recently_active_attempt_is_not_swept(storage: Storage, now: MovableClock) -> None:
    """Its age is that of the newest object."""
    await die(storage, 1, publish=True)
    assert await stale_after(storage, now, seconds=3000) == []
    assert [left.epoch for left in await stale_after(storage, now, seconds=3000)] == [1]


async def test_an_interrupted_sweep_is_repeated(storage: Storage, now: MovableClock) -> None:
    published = await die(storage, 1, publish=True)
    now.advance(7200)

    async def unreachable(key: str) -> bool:
        raise OSError("no database")

    async def forgotten(key: str) -> bool:
        return False

    with pytest.raises(OSError, match="no database"):
        await storage.sweep(3600, recorded=unreachable)
    assert await visible(storage) == sorted(published.values())
    assert await storage.sweep(3600, recorded=forgotten) == 1
    assert await everything(storage) == []


async def test_unreachable_storage_during_cleanup_does_not_fail_the_attempt(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(keys: list[str]) -> None:
        raise OSError("away")

    async with storage.staging(JOB, 1) as staged:
        await staged.put("a", b"x")
        monkeypatch.setattr(storage._objects, "delete", away)
    assert "remain until the next sweep" in caplog.text


async def test_a_staged_object_is_streamed(storage: Storage) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"he"
        yield b"llo"

    async with storage.staging(JOB, 1) as staged:
        assert (await staged.put("a", chunks(), size=5)).size == 5


@pytest.mark.parametrize(("job_id", "epoch"), [("a/b", 1), ("", 1), ("..", 1), (JOB, -1), (JOB, "1"), (JOB, None)])
async def test_an_invalid_attempt_id_is_rejected(storage: Storage, job_id: str, epoch: int) -> None:
    with pytest.raises(Invalid):
        async with storage.staging(job_id, epoch):
            pass


@pytest.mark.parametrize("name", ["../x", "/x", "", "a//b"])
async def test_an_invalid_object_name_is_rejected(storage: Storage, name: str) -> None:
    async with storage.staging(JOB, 1) as staged:
        with pytest.raises(Invalid) as refused:
            await staged.put(name, b"x")
        assert refused.value.code == "invalid_object_key"
