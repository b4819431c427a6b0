"""The gallery of examples/images, whose jobs wait after each report of finished variants until the test goes on.

In the folder `IMAGES_STEPS`, the file `at-N` says that N variants are reported; with `go-N`, the job goes on.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import Context
from holdfast.model import Part
from holdfast.worker.processes.app_loader import load
from holdfast.workloads.images import processing
from tests.worker.in_process import until

__all__ = ["app"]

app = load(f"{Path(__file__).parents[3]}/examples/images/app.py:app", [])
_real_keep_parts = Context.keep_parts


async def _keep_parts(self: Context, parts: Sequence[Part], **more: Any) -> None:
    await _real_keep_parts(self, parts, **more)
    steps, count = Path(os.environ["IMAGES_STEPS"]), len(await self.finished_parts())
    (steps / f"at-{count}").touch()
    await until((steps / f"go-{count}").exists)


processing.REPORT_SECONDS = 0.0
Context.keep_parts = _keep_parts  # type: ignore[method-assign,assignment]
