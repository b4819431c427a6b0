"""RQ with its default worker, which makes a process for each job."""

from common import URL, noop, ready
from redis import Redis
from rq import Queue

queue = Queue(connection=Redis.from_url(URL or "redis://"))


def one(data: str) -> None:
    queue.enqueue(noop, data)


def bulk(data: list[str]) -> None:
    queue.enqueue_many([Queue.prepare_data(noop, (each,)) for each in data])


opened = ready(one, bulk)
