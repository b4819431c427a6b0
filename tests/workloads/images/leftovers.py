"""What tests of outages ask about images: what is stored, recorded and left over, and how often a job ended."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from holdfast.lifecycle import State
from holdfast.store.queries import Query
from holdfast.workloads.images import objects
from holdfast.workloads.images.extension import ext
from holdfast.workloads.images.jobs import sweep
from holdfast.workloads.images.picture import Picture
from holdfast.workloads.images.service import app
from holdfast.workloads.images.variants import read_variants

RECORDED = Query(
    "recorded_keys",
    "SELECT storage_key FROM holdfast_images_variant UNION SELECT storage_key FROM holdfast_images_original"
    " ORDER BY storage_key",
)
LEFTOVERS = Query("leftover_keys", "SELECT storage_key FROM holdfast_images_garbage ORDER BY storage_key")
MAKE_DUE = Query("make_leftovers_due", "UPDATE holdfast_images_garbage SET due_at = {now}")
IMAGES = Query("count_images", "SELECT count(*) AS images FROM holdfast_images_image")


async def _keys(query: Query) -> list[str]:
    rows = await (await app.engine()).store.read(lambda tx: tx.all(query))
    return [row["storage_key"] for row in rows]


async def recorded() -> list[str]:
    """The objects that images have."""
    return await _keys(RECORDED)


async def leftovers() -> list[str]:
    """The objects and folders that a sweep will look at."""
    return await _keys(LEFTOVERS)


async def images() -> int:
    [row] = await (await app.engine()).store.read(lambda tx: tx.all(IMAGES))
    return int(row["images"])


async def stored() -> list[str]:
    """The objects that there are, without the mark of the storage."""
    return sorted([info.key async for info in objects.storage().list() if not info.key.startswith(objects.MARK)])


async def swept() -> None:
    """By a worker that is running."""
    await (await sweep.enqueue()).result(60)


async def swept_when_due() -> None:
    """As when a day has passed. A folder is swept twice."""
    for _ in range(2):
        await (await app.engine()).store.write(lambda tx: tx.run(MAKE_DUE))
        await swept()
    assert await leftovers() == []


def digests(image: dict[str, Any]) -> dict[str, str]:
    return {variant["name"]: variant["sha256"] for variant in image["variants"]}


def expected_digests(data: bytes, variants: list[dict[str, Any]]) -> dict[str, str]:
    """Of an image that is processed without any trouble."""
    wanted = read_variants(json.dumps(variants))
    picture = Picture.open(data, ext.settings.limits, largest=wanted)
    return {each.name: hashlib.sha256(picture.render(each).data).hexdigest() for each in wanted}


async def ends(job_id: str) -> int:
    """How often the job became final."""
    history = await (await app.engine()).reads.history(job_id)
    return len([event for event in history if event.to_state in (State.SUCCEEDED, State.DEAD)])
