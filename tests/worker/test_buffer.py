"""The buffer of a worker: its order, and how many of its jobs wait for a child process."""

from collections import deque
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.buffer import Buffer

MOVES = st.lists(st.sampled_from(["extend", "pop_first", "put_back", "remove", "discard", "clear"]), max_size=40)


class Run:
    """All that a buffer asks of an execution is `needs_child`, the tenant and whether it may use the reserved slot."""

    def __init__(self, needs_child: bool = False, tenant: str = "default", reserved_slot: bool = False) -> None:
        self.needs_child = needs_child
        self.handler = SimpleNamespace(reserved_slot=reserved_slot)
        self.lease = SimpleNamespace(tenant=tenant)


def a_run(random: Any) -> Run:
    return Run(random.random() < 0.5, reserved_slot=random.random() < 0.3)


def buffer_of(runs: list[Run]) -> Buffer:
    buffer: Any = Buffer()
    buffer.extend(runs)
    return buffer  # type: ignore[no-any-return]


@given(MOVES, st.randoms(use_true_random=False))
def test_its_count_is_always_what_a_look_at_each_job_would_find(moves: list[str], random: Any) -> None:
    known: deque[Any] = deque(a_run(random) for _ in range(5))
    buffer: Any = buffer_of(list(known))
    for move in moves:
        match move:
            case "extend":
                buffer.extend(runs := [a_run(random) for _ in range(3)])
                known.extend(runs)
            case "pop_first" if known:
                assert buffer.pop_first() is known.popleft()
            case "put_back":
                buffer.put_back(runs := [a_run(random) for _ in range(3)])
                known.extendleft(reversed(runs))
            case "remove" if known:
                buffer.remove(run := random.choice(known))
                known.remove(run)
            case "discard":
                buffer.discard(gone := set(random.sample(list(known), len(known) // 2)))
                known = deque(run for run in known if run not in gone)
            case "clear":
                assert buffer.clear() == list(known)
                known.clear()
        assert list(buffer) == list(known)
        assert len(buffer) == len(known)
        assert buffer.for_children == sum(run.needs_child for run in known)
        assert buffer.for_reserve == sum(run.handler.reserved_slot for run in known)


def test_no_job_is_looked_at_when_the_count_is_asked_for() -> None:
    asked: list[Any] = []

    class Asked:
        lease = SimpleNamespace(tenant="default")
        handler = SimpleNamespace(reserved_slot=False)

        @property
        def needs_child(self) -> bool:
            return bool(asked.append(self))

    buffer: Any = Buffer()
    for _ in range(100):
        buffer.extend([Asked()])
    for _ in range(100):
        assert buffer.for_children == 0
    assert len(asked) == 100, "once for each job"


def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    large = [Run(tenant="large") for _ in range(4)]
    small, other = [Run(tenant="small", needs_child=True) for _ in range(2)], Run(tenant="other")
    buffer: Any = buffer_of([*large, *small])
    buffer.extend([other])
    order = [large[0], small[0], other, large[1], small[1], large[2], large[3]]
    assert list(buffer) == order
    first = [buffer.pop_first() for _ in range(3)]
    assert first == order[:3]
    buffer.put_back(first[:2])
    assert list(buffer) == [large[0], small[0], large[1], small[1], large[2], large[3]]
    buffer.remove(small[0])
    buffer.discard({large[0], small[1]})
    assert list(buffer) == large[1:]
    assert (len(buffer), buffer.for_children) == (3, 0)


def test_new_tenants_do_not_overtake_those_that_wait() -> None:
    """With many tenants of one job each, the oldest starts first."""
    runs = [Run(tenant=f"tenant-{number}") for number in range(9)]
    buffer: Any = buffer_of(runs[:4])
    started = []
    for run in runs[4:]:
        buffer.extend([run])
        started.append(buffer.pop_first())
    assert started == runs[:5]
