"""Celery on Redis, acknowledging after the job so that a crash does not lose it, without a result backend."""

import common
from celery import Celery
from common import URL, ready

app = Celery("bench", broker=URL)
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False)


@app.task(name="noop")
def noop(data: str) -> None:
    common.noop(data)


opened = ready(noop.delay)
