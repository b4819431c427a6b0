"""Names from Celery's API: using one raises an error that says what to write instead."""

from __future__ import annotations

from typing import NoReturn

INSTEAD = {
    "App": {
        "task": "write @app.job(...) above the function",
        "send_task": "call .enqueue(...) on the job, or `holdfast jobs create` from a shell",
        "autodiscover_tasks": "import the modules that define jobs where the app is defined",
        "conf": "settings come from HOLDFAST_ variables or holdfast.toml, and options from @app.job(...)",
        "worker_main": "start workers with `holdfast worker --app MODULE:APP`",
    },
    "Definition": {
        "delay": "write await {name}.enqueue(...), or {name}.enqueue_sync(...) in code that is not async",
        "apply_async": "write await {name}.options(delay=..., queue=...).enqueue(...), or .enqueue_sync(...)",
        "apply": "call the function itself, {name}(...), to run it here and now",
        "retry": "raise Retry(code, message, after=seconds) in the handler",
    },
    "JobHandle": {
        "ready": "await job.status() is COMPLETED, FAILED, CANCELED or REJECTED once it is",
        "successful": "await job.status() is COMPLETED if it was",
        "failed": "await job.status() is FAILED if it did",
        "wait": "write await job.result(timeout=...), or job.result_sync(timeout=...)",
        "revoke": "write await job.cancel(), or job.cancel_sync()",
        "task_id": "write job.id",
    },
}


class _Missing:
    """Reading the name raises; setting it on an object works as usual."""

    def __init__(self, name: str, instead: str) -> None:
        self._name, self._instead = name, instead

    def __get__(self, found: object, owner: type) -> NoReturn:
        missing = f"{owner.__name__!r} object has no attribute {self._name!r}"
        instead = self._instead.format(name=getattr(found, "__name__", "job"))
        raise AttributeError(f"{missing}, which is Celery's: {instead}", name=self._name, obj=found)


class CeleryNames:
    """Base of the classes in the table. Type checkers still report the missing names."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, instead in INSTEAD.get(cls.__name__, {}).items():
            setattr(cls, name, _Missing(name, instead))
