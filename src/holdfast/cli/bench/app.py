"""The app that the workers of `holdfast bench` run: one empty job."""

from __future__ import annotations

from holdfast import App

NAME = "holdfast-bench"  # of the queue, of the job type and of the workers
TEXT = "x" * 89  # a payload of 100 bytes

app = App()


@app.job(NAME, queue=NAME)
async def nothing(text: str, timed: bool = False) -> float | None:
    """With `timed` it returns its start time, by a clock that all processes of a machine share."""
    return app.clock.monotonic() if timed else None
