"""Many clients in one process that send prepared requests over plain sockets: `python -m benchmarks.load_generator`.

It reads orders as lines of JSON, does each, and answers with a line: how many were answered, in how long, how quickly.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from itertools import cycle
from typing import Any

import uvloop


class Client(asyncio.Protocol):
    """One connection that is kept open: the next request is sent after the complete response to the last one."""

    def __init__(self, requests: list[bytes], status: bytes) -> None:
        self._requests = cycle(requests)
        self._status = b"HTTP/1.1 " + status
        self._answer = b""
        self._sent = self._until = 0.0
        self.took: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server hung up"))

    def begin(self, until: float) -> None:
        self._until = until
        self._say()

    def _say(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head = self._answer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = self._answer.find(b"content-length: ", 0, head)
        end = self._answer.find(b"\r\n", length)
        if len(self._answer) < head + 4 + int(self._answer[length + 16 : end]):
            return
        if not self._answer.startswith(self._status):
            self.done.set_exception(ValueError(self._answer.decode()))
            return
        self._answer = b""
        now = time.perf_counter()
        self.took.append(now - self._sent)
        if now < self._until:
            self._say()
        else:
            self.done.set_result(None)


async def load(order: dict[str, Any]) -> dict[str, Any]:
    requests = [request.encode() for request in order["requests"]]
    status, count = str(order["status"]).encode(), order["clients"]
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(count):
        own = requests[number::count] or requests  # no two clients send the same one, if there are enough
        _, client = await loop.create_connection(lambda own=own: Client(own, status), "127.0.0.1", order["port"])
        clients.append(client)
    begin = time.perf_counter()
    for client in clients:
        client.begin(begin + order["seconds"])
    await asyncio.gather(*(client.done for client in clients))
    seconds = time.perf_counter() - begin
    took = sorted(each for client in clients for each in client.took)
    for client in clients:
        client._transport.close()
    return {
        "requests": len(took),
        "seconds": seconds,
        "p50_ms": 1000 * took[len(took) // 2],
        "p99_ms": 1000 * took[len(took) * 99 // 100],
    }


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            print(json.dumps(runner.run(load(json.loads(line)))), flush=True)


if __name__ == "__main__":
    main()
