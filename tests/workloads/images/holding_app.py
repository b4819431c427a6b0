"""The image service, whose first execution to report variants goes on reporting them until it is interrupted.

It leaves the file `IMAGES_MARK` before.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import Context
from holdfast.model import Part
from holdfast.workloads.images.service import app

__all__ = ["app"]

PAUSE_SECONDS = 0.02


async def _keep_parts(self: Context, parts: Sequence[Part], **more: Any) -> None:
    held = _is_first()
    await _real_keep_parts(self, parts, **more)
    while held:
        await asyncio.sleep(PAUSE_SECONDS)
        await _real_keep_parts(self, parts, **more)


def _is_first() -> bool:
    try:
        Path(os.environ["IMAGES_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


_real_keep_parts = Context.keep_parts
Context.keep_parts = _keep_parts  # type: ignore[method-assign,assignment]
