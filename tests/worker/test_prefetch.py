"""How many jobs a worker claims ahead."""

from holdfast.worker.prefetch import AHEAD_MAX, Prefetch


class TestPrefetch:
    def test_nothing_is_prefetched_before_the_first_job_ended(self) -> None:
        assert Prefetch(10).ahead() == 0

    def test_slow_jobs_are_not_prefetched(self) -> None:
        prefetch = Prefetch(10)
        prefetch.ended(2.0)
        assert prefetch.ahead() == 0

    def test_quick_jobs_are_prefetched_up_to_a_limit(self) -> None:
        prefetch = Prefetch(10)
        prefetch.ended(0.01)
        assert prefetch.ahead() == 100
        for _ in range(200):
            prefetch.ended(0.0)
        assert prefetch.ahead() == AHEAD_MAX

    def test_prefetch_falls_when_jobs_become_slow(self) -> None:
        prefetch = Prefetch(10)
        prefetch.ended(0.001)
        for _ in range(3):
            prefetch.ended(30.0)
        assert prefetch.ahead() == 0

    def test_prefetch_is_reduced_for_a_while_after_released_jobs(self) -> None:
        prefetch = Prefetch(10)
        prefetch.ended(0.0)
        prefetch.claimed(100, back=10)
        assert prefetch.ahead() == AHEAD_MAX // 2
        prefetch.claimed(100, back=60)
        assert prefetch.ahead() == 0
        prefetch.claimed(10, back=0)
        assert prefetch.ahead() == 0, "it was too many twice"
        prefetch.claimed(10, back=0)
        assert prefetch.ahead() == 1
        for _ in range(30):
            prefetch.claimed(10, back=0)
        assert prefetch.ahead() == AHEAD_MAX
