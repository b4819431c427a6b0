"""From settings to an engine."""

from pathlib import Path

from holdfast.assembly import open_engine, retention
from holdfast.engine import Retention
from holdfast.model import NewJob
from holdfast.settings import Settings


async def test_settings_fill_in_what_the_lifecycle_leaves_open(tmp_path: Path) -> None:
    engine = await open_engine(Settings(data_dir=str(tmp_path), lease_seconds=44, max_attempts=9))
    worker = (await engine.register()).id
    await engine.create(NewJob(type="plain"))
    await engine.create(NewJob(type="image", lifecycle="images"))
    plain, image = sorted(await engine.claim(worker, limit=2), key=lambda lease: lease.type, reverse=True)
    await engine.close()

    assert (plain.expires_at - plain.claimed_at).total_seconds() == 44
    assert (image.expires_at - image.claimed_at).total_seconds() == 600, (
        "the lifecycle's own word stands above settings"
    )
    assert (plain.max_attempts, image.max_attempts) == (9, 9)


def test_only_succeeded_jobs_are_pruned_unless_a_setting_says_so() -> None:
    assert retention(Settings()) == Retention(succeeded=1_209_600, dead=None, canceled=None, rejected=None)
    assert not retention(Settings(retain_succeeded_seconds=None)).deletes
    assert retention(Settings(retain_dead_seconds=60)).dead == 60
