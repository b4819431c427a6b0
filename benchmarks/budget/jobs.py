"""The app whose worker is measured: one job that does nothing."""

from __future__ import annotations

from benchmarks.implementations import TYPE
from holdfast.sdk.app import App

app = App()


@app.job(TYPE)
async def nothing(to: str, subject: str, template: int) -> None:
    pass
