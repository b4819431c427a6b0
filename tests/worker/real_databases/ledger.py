"""All events of a database, read from the feed after a test."""

from collections import Counter, defaultdict
from collections.abc import Collection

from holdfast.engine import Cursor, Engine
from holdfast.model import Event
from tests.worker.real_processes.harness import WorkerHarness, eventually


class Ledger:
    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._by_job: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._by_job[event.job_id].append(event)

    @classmethod
    async def read(cls, engine: Engine) -> "Ledger":
        events: list[Event] = []
        cursor = Cursor()
        while True:
            page, cursor = await engine.reads.feed(cursor)
            if not page:
                return cls(events)
            events += page

    def verbs(self, job: str) -> list[str]:
        """What happened to it once it was in its queue."""
        return [event.verb for event in self._by_job[job] if event.verb not in ("create", "accept")]

    def each_succeeded_once(self, jobs: Collection[str]) -> None:
        """These jobs and no others: none is lost, none is there twice, none ended twice."""
        assert set(self._by_job) == set(jobs)
        ends = {job: [event.to_state for event in events].count("succeeded") for job, events in self._by_job.items()}
        assert set(ends.values()) == {1}, {job: self.verbs(job) for job, number in ends.items() if number != 1}
        assert {events[-1].to_state for events in self._by_job.values()} == {"succeeded"}

    def attempts(self) -> Counter[int]:
        """How many jobs needed how many attempts; what was given back did not count."""
        return Counter(events[-1].attempt for events in self._by_job.values())

    def reaped(self) -> Counter[str | None]:
        return Counter(event.reason for event in self.events if event.verb == "reap")

    def first_claim(self, after: float) -> float:
        """How long after that time there was one."""
        return min(at for at in self.times("claim") if at > after) - after

    def times(self, verb: str, job: str | None = None) -> list[float]:
        return [event.at.timestamp() for event in self.events if event.verb == verb and job in (None, event.job_id)]


async def all_done(on: WorkerHarness, ids: Collection[str], seconds: float = 120) -> Ledger:
    """These jobs and no others have succeeded, each once."""
    engine = await on.engine()

    async def done() -> bool:
        counts = await engine.reads.counts()
        return {state.value for *_, state, _ in counts} == {"succeeded"} and sum(row[-1] for row in counts) == len(ids)

    await eventually(done, seconds)
    ledger = await Ledger.read(engine)
    ledger.each_succeeded_once(ids)
    return ledger
