"""The image generation service: prompts in, images out, with guards, credits and moderation.

`holdfast dev --app holdfast.workloads.generation:app` runs it; `app.include(holdfast.workloads.generation.ext)` adds it
to another app. Both need `pip install 'holdfast[generation]'`; this module and the manifest do not.
"""

from importlib import import_module
from typing import Any

_FROM = {"app": "service", "ext": "included"}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
