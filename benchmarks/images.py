"""The image service beside bare loops and a bare endpoint: processing, the upload of 50 MB, the cost of a small image.

    python -m benchmarks.images [--store sqlite] [--photos 200] [--only processing] [--quick]

The worker is `holdfast worker` with two child processes, the loops have two processes. The service syncs each file and
each commit, a loop syncs nothing unless it says so. The sides take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx2
import msgspec

from benchmarks.databases import Database, Host, host
from benchmarks.image_loops import NINE, PROCESSES, THREE, Loop, bitmap, jpegs, loop, pictures, thumbnails
from benchmarks.image_uploads import Uploads
from benchmarks.measurement import Candidate, Score, measure_in_turns
from benchmarks.processes import HOLDFAST, listening, process
from benchmarks.report import arguments, chosen_stores, print_table, rounds_of, write_results
from holdfast.assembly.engine import open_engine
from holdfast.engine import Engine
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.workloads.images.jobs import QUEUE
from holdfast.workloads.images.service import app
from holdfast.workloads.images.variants import Variant

MB = 10**6
APP = "holdfast.workloads.images:app"
PROCESSING, UPLOAD, SMALL_THREE, SMALL_NINE = (
    "processing, of a loop with Pillow",
    "upload of {} MB, of a bare endpoint that syncs",
    "small image, 3 variants, ms more than in a loop",
    "small image, 9 variants, ms more than in a loop",
)
THROUGHPUT_MIN, UPLOAD_MIN, SMALL_MAX_MS = 0.9, 0.7, 3.0
LOOP, SYNCED, SERVICE = "loop", "loop that syncs", "service"
POLL_SECONDS = 0.01
UNFINISHED = "SELECT status, count(*) FROM holdfast_images_image WHERE status <> 'completed' GROUP BY status"


class Sizes(NamedTuple):
    photos: int = 200
    photo_size: tuple[int, int] = (4000, 3000)
    different: int = 5  # files
    rounds: int = 10
    small: int = 60  # in a turn; a third of them with nine variants
    small_rounds: int = 9
    uploads: int = 10
    upload_bytes: int = 50 * MB


QUICK = Sizes(
    photos=2, photo_size=(400, 300), different=1, rounds=1, small=3, small_rounds=1, uploads=1, upload_bytes=MB
)


class Files(NamedTuple):
    photos: list[Path]
    small: list[Path]
    large: bytearray


class Service:
    """A server and a worker in processes of their own."""

    def __init__(self, database: Database, engine: Engine, port: int, http: httpx2.AsyncClient) -> None:
        self.database, self._engine, self.port, self._http = database, engine, port, http
        self._number = 0

    async def prepare(self, paths: Sequence[Path], variants: Sequence[Variant]) -> None:
        """Upload them while the worker may not begin."""
        await self._engine.queues.pause(QUEUE)
        for path in paths:
            self._number += 1
            data = path.read_bytes() + self._number.to_bytes(8, "big")  # else the service would know it already
            query = {"variants": msgspec.json.encode(variants).decode()}
            answer = await self._http.post("/images", content=data, params=query)
            assert answer.status_code == 202, answer.text
        await self.database.settle(
            "holdfast_images_image", "holdfast_images_variant", "holdfast_jobs", "holdfast_events"
        )

    async def process(self, images: int) -> int:
        """From the moment when the worker may begin to the end of the last image."""
        await self._engine.queues.resume(QUEUE)
        while left := await self.database.rows(UNFINISHED):
            assert "failed" not in dict(map(tuple, left)), left
            await asyncio.sleep(POLL_SECONDS)
        return images


@asynccontextmanager
async def service(machine: Host, folder: Path, *, works: bool) -> AsyncIterator[Service]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(machine.fresh())
        await migrate(database.url, app.extensions.values())
        engine = await open_engine(Settings(database_url=database.url))
        stack.push_async_callback(engine.close)
        environment = {
            "HOLDFAST_DATABASE_URL": database.url,
            "HOLDFAST_CHILD_PROCESSES_MAX": str(PROCESSES),
            "HOLDFAST_IMAGES_STORAGE_URL": str(folder / "objects"),
        }
        serve = (*HOLDFAST, "serve", "--app", APP, "--port", "{port}")
        port = stack.enter_context(listening(folder, *serve, **environment)).port
        if works:
            stack.enter_context(process(folder, *HOLDFAST, "worker", "--app", APP, **environment))
        http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
        yield Service(database, engine, port, await stack.enter_async_context(http))


async def processing(ours: Service, bare: Loop, files: Files, sizes: Sizes) -> dict[str, Score]:
    a_turn = max(1, sizes.photos // sizes.rounds)
    paths = (files.photos * a_turn)[:a_turn]
    loops = [Candidate(LOOP, ours.database, _nothing, partial(bare.over, paths, thumbnails))]
    return await turns("processing", ours, paths, NINE, loops, sizes.rounds)


async def small(
    ours: Service, bare: Loop, paths: list[Path], variants: Sequence[Variant], rounds: int
) -> dict[str, Score]:
    works = {name: partial(pictures, variants=variants, synced=name == SYNCED) for name in (LOOP, SYNCED)}
    loops = [Candidate(name, ours.database, _nothing, partial(bare.over, paths, work)) for name, work in works.items()]
    return await turns(f"small, {len(variants)} variants", ours, paths, variants, loops, rounds)


async def turns(
    title: str, ours: Service, paths: list[Path], variants: Sequence[Variant], loops: list[Candidate], rounds: int
) -> dict[str, Score]:
    prepare, run = partial(ours.prepare, paths, variants), partial(ours.process, len(paths))
    candidates = [Candidate(SERVICE, ours.database, prepare, run), *loops]
    return await measure_in_turns(title, candidates, rounds=rounds, slices=1)


async def uploads(machine: Host, folder: Path, files: Files, sizes: Sizes) -> dict[str, Score]:
    bare, here = ("-m", "benchmarks.image_uploads", "{port}"), {"PYTHONPATH": str(Path(__file__).parents[1])}
    async with service(machine, folder, works=False) as ours:
        with (
            listening(folder, *bare, str(folder / "synced"), "--sync", **here) as synced,
            listening(folder, *bare, str(folder / "plain"), **here) as plain,
        ):
            candidates = [
                Candidate(name, ours.database, _nothing, Uploads(port, files.large).send)
                for name, port in ((SERVICE, ours.port), (SYNCED, synced.port), (LOOP, plain.port))
            ]
            return await measure_in_turns("upload", candidates, rounds=sizes.uploads, slices=2)


async def _nothing() -> None: ...


class Figures:
    """What was measured, and what is told of it."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.results: list[dict[str, Any]] = []

    def ratio(self, name: str, scores: dict[str, Score], other: str, least: float | None = None) -> None:
        value = scores[SERVICE].ratio_to(scores[other])
        self._add(name, value, None if least is None else value >= least, f">= {least}", scores)

    def more_ms(self, name: str, scores: dict[str, Score], other: str, most: float | None = None) -> None:
        pairs = zip(scores[SERVICE].rounds, scores[other].rounds, strict=True)
        value = median(1000 * (mine.seconds / mine.units - its.seconds / its.units) for mine, its in pairs)
        self._add(name, value, None if most is None else value <= most, f"<= {most:g}" if most else "", scores)

    def _add(self, name: str, value: float, reached: bool | None, aim: str, scores: dict[str, Score]) -> None:
        told = {None: "", True: "reached", False: "NOT REACHED"}[reached]
        self.rows.append([name, f"{value:.2f}", "" if reached is None else aim, told])
        found = {"figure": name, "value": round(value, 4), "reached": reached}
        self.results.append({**found, **rounds_of(scores)})


async def measure_store(machine: Host, files: Files, sizes: Sizes, only: str) -> list[dict[str, Any]]:
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="holdfast-images-") as folder:
        if only in UPLOAD:
            await _measure_uploads(figures, machine, Path(folder), files, sizes)
        if any(only in name for name in (PROCESSING, SMALL_THREE, SMALL_NINE)):
            await _measure_worker(figures, machine, Path(folder), files, sizes, only)
    print_table(await machine.version(), ["", "is", "aim", ""], figures.rows)
    return figures.results


async def _measure_uploads(figures: Figures, machine: Host, folder: Path, files: Files, sizes: Sizes) -> None:
    scores = await uploads(machine, folder, files, sizes)
    figures.ratio(UPLOAD.format(round(len(files.large) / MB)), scores, SYNCED, UPLOAD_MIN)
    figures.ratio("... of one that does not sync", scores, LOOP)


async def _measure_worker(figures: Figures, machine: Host, folder: Path, files: Files, sizes: Sizes, only: str) -> None:
    with loop(folder / "loop") as bare:
        async with service(machine, folder, works=True) as ours:
            if only in PROCESSING:
                figures.ratio(PROCESSING, await processing(ours, bare, files, sizes), LOOP, THROUGHPUT_MIN)
            for name, variants, share in ((SMALL_THREE, THREE, 1), (SMALL_NINE, NINE, 3)):
                if only in name:
                    paths = (files.small * sizes.small)[: sizes.small // share]
                    scores = await small(ours, bare, paths, variants, sizes.small_rounds)
                    figures.more_ms(name, scores, LOOP, SMALL_MAX_MS)
                    figures.more_ms("... than in one that syncs its files", scores, SYNCED)


def made(folder: Path, sizes: Sizes) -> Files:
    photos = jpegs(folder, sizes.different, sizes.photo_size, 90)
    return Files(photos, jpegs(folder, sizes.different, (800, 600), 85), bitmap(sizes.upload_bytes))


async def measure(options: argparse.Namespace) -> None:
    sizes = QUICK if options.quick else Sizes(photos=options.photos)
    stores: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-photos-") as folder:
        files = made(Path(folder), sizes)
        for store in chosen_stores(options):
            with host(store) as machine:
                stores[store] = await measure_store(machine, files, sizes, options.only)
    write_results(options.results, "images", quick=options.quick, stores=stores)


def main(words: list[str] | None = None) -> int:
    parser = arguments(__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--photos", type=int, default=Sizes().photos, help="photographs to process on each side")
    parser.add_argument("--only", default="", metavar="NAME", help="figures whose name contains this")
    asyncio.run(measure(parser.parse_args(words)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
