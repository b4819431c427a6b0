"""The image service: upload, process, store and serve images and their variants.

`holdfast dev --app holdfast.workloads.images:app` runs it; `app.include(holdfast.workloads.images.ext)` adds it to
another app. Both need `pip install 'holdfast[images]'`; this module and the manifest do not.
"""

from importlib import import_module
from typing import Any

_FROM = {"app": "service", "ext": "included"}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
