"""The playground of examples/generation, with a provider that does what the prompt says.

"unsteady": each first try fails. "impossible": it fails for good. "unsafe": the provider refuses. "stepwise": each
image waits, in the folder `GENERATION_STEPS`, for a file that is called by its number; `GENERATION_STEPWISE` is another
word for that.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from holdfast.worker.processes.app_loader import load
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.providers.base import ImageOrder, Made
from holdfast.workloads.generation.providers.local import LocalProvider
from tests.worker.in_process import until

__all__ = ["app"]

app = load(f"{Path(__file__).parents[3]}/examples/generation/app.py:app", [])
_real_create = LocalProvider.create
_tries = Counter[str]()


async def _create(self: LocalProvider, order: ImageOrder) -> Made:
    _tries[order.key] += 1
    if "unsteady" in order.prompt and _tries[order.key] == 1:
        raise ProviderError("provider_unavailable", "it is restarted", "transient", retry_after=2)
    if "impossible" in order.prompt:
        raise ProviderError("provider_refused", "it does not draw that", "permanent")
    if "unsafe" in order.prompt:
        raise ProviderError("provider_rejected", "it must not draw that", "rejected")
    if os.environ.get("GENERATION_STEPWISE", "stepwise") in order.prompt:
        number = int(order.key.rsplit("-", 1)[1]) + 1
        await until((Path(os.environ["GENERATION_STEPS"]) / str(number)).exists)
    return await _real_create(self, order)


LocalProvider.create = _create  # type: ignore[method-assign]
