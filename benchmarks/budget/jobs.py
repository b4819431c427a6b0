"""The app whose worker is measured: one job that does nothing but count itself."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.budget.counter import VARIABLE, Counter
from benchmarks.implementations import TYPE
from holdfast.sdk.app import App

app = App()
counter = Counter(Path(os.environ[VARIABLE]))


@app.job(TYPE)
async def nothing(to: str, subject: str, template: int) -> None:
    counter.add()
