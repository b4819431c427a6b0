"""Names of Celery that are not there: the error says how it is written with Holdfast."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class CeleryNames:
    """For a class whose name is in the table. Type checkers go on refusing what is not there."""

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            kind = type(self).__name__
            missing = f"{kind!r} object has no attribute {name!r}"
            if instead := INSTEAD.get(kind, {}).get(name):
                called = self.__dict__.get("__name__", "job")
                raise AttributeError(f"{missing}, which is Celery's: {instead.format(name=called)}")
            raise AttributeError(missing, name=name, obj=self)
