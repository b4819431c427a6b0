"""A lifecycle that an app declares is known to servers and commands that were started without the app."""

from holdfast.engine import Engine
from holdfast.engine.registry import TYPES_FRESH_SECONDS
from holdfast.lifecycle import DEFAULT, Lifecycles, Machine
from holdfast.model import JobType
from holdfast.store import open_store, q
from tests.clocks import WholeClock
from tests.server.steps import ADMIN, Served, serving


def laundry(queued: str, name: str = "laundry") -> Lifecycles:
    words = {**DEFAULT.words, "queued": queued}
    return Lifecycles(Machine(name, words=words, moves=map(str, DEFAULT.moves)))


async def declare(url: str, lifecycles: Lifecycles, *types: JobType) -> None:
    engine = Engine(await open_store(url), lifecycles=lifecycles)
    try:
        await engine.job_types.declare(*types, app="laundry")
    finally:
        await engine.close()


async def found(served: Served, word: str) -> list[str] | str:
    answer = (await served.http.get("/api/admin/jobs", params={"state": word}, headers=ADMIN)).json()
    return [job["state"] for job in answer["jobs"]] if "jobs" in answer else answer["code"]


async def test_jobs_use_the_status_names_of_the_lifecycle(store_url: str) -> None:
    clock = WholeClock()
    async with serving(store_url, clock=clock) as served:
        wash, plain = JobType(name="WASH", lifecycle="laundry"), JobType(name="PLAIN")
        await declare(store_url, laundry("soaking"), wash, plain)
        kept = await served.engine.store.read(lambda tx: tx.all(q.job_types))
        assert [(row["name"], row["machine"] is None) for row in kept] == [("PLAIN", True), ("WASH", False)]
        for job_type in ("WASH", "PLAIN"):
            made = await served.http.post("/jobs", json={"jobType": job_type, "payload": {}})
            assert made.status_code == 202, made.text
        assert await found(served, "soaking") == ["soaking"]
        assert sorted(await found(served, "queued")) == ["queued", "soaking"], "a stored state is one in all lifecycles"
        assert await found(served, "soking") == "unknown_state"
        listed = (await served.http.get("/jobs", params={"state": "soaking"})).json()["jobs"]
        assert [job["jobType"] for job in listed] == ["WASH"]
        view = await served.http.get("/api/admin/lifecycles/laundry", headers=ADMIN)
        assert view.json()["words"]["queued"] == "soaking"

        await declare(store_url, laundry("in_the_tub"), wash)
        clock.advance(TYPES_FRESH_SECONDS)
        assert await found(served, "in_the_tub") == ["soaking"], "a job keeps the words that it was created under"
        assert await found(served, "soaking") == "unknown_state"


async def test_lifecycles_of_the_server_are_not_replaced(store_url: str) -> None:
    await declare(store_url, laundry("soaking"), JobType(name="WASH", lifecycle="laundry"))
    async with serving(store_url, lifecycles=laundry("waiting_its_turn")) as served:
        assert await found(served, "waiting_its_turn") == []
        assert await found(served, "soaking") == "unknown_state"
