"""A provider of images on loopback that does what a test says: an API like that of OpenAI, one like that of Replicate,
and the URLs of images.

    with provider_stub() as stub:
        settings = Settings(openai_url=stub.openai_url, poll_url=stub.poll_url, webhook_secret=stub.secret)
        stub.creates = [status(503), paid_and_lost]     # the next two orders; the third is answered as usual
        stub.progress = ["starting", "processing", "succeeded"]  # of predictions that are created from now on

It runs in threads: workers in other processes may use it, and a blocked event loop does not stop it.

Answers. `creates`, `polls` and `downloads` are used up, one for each request; then `otherwise_create`,
`otherwise_poll` and `otherwise_download` answer. An answer is a function of an `Exchange`. Usual ones: `image_base64`,
`image_url`, `prediction`, `current`, `image_bytes`. Faults: `status(...)`, `error(...)`, `throttled(...)`, `no_quota`,
`unsafe`, `html`, `silent(...)`, `hangs_up`, `paid_and_lost`, `paid_and_silent(...)`, `raw(...)`, `short(...)`,
`endless(...)`, `redirect(...)`.

Idempotency. One image is paid for each `Idempotency-Key`: `stub.paid[key]` counts what the provider would charge. A
second order under a key gets the same image or prediction. Requests without a key are all different.

Predictions. Each poll moves a prediction on by one word of its `progress`; the last one stays. `stub.end(id, "failed",
error="...")` ends it at once, and so does a cancel of the API, with "canceled".

Webhooks. Predictions with a webhook URL send as many as `webhooks_before_answer` (as succeeded, before the answer to
the order), `webhooks_at_end` (when a poll or `end` ends them), and `webhooks_after_cancel`; `stub.send_webhook(id,
times=10)` sends some now and returns the statuses of their answers. All have the signature of `stub.secret`.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from PIL import Image
from standardwebhooks import Webhook

SECRET = "whsec_" + b64encode(b"the secret of the provider stub").decode()
ENDED = {"succeeded", "failed", "canceled", "rejected", "nsfw", "error"}
PIECE = b"\0" * 65_536


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]  # by names in lower case
    body: Any  # of JSON


@dataclass
class Prediction:
    id: str
    key: str
    input: dict[str, Any]
    webhook: str | None
    progress: list[str]
    output: Any = None
    error: Any = None

    @property
    def status(self) -> str:
        return self.progress[0]

    def move_on(self) -> None:
        self.progress = self.progress[1:] or self.progress


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, stub: ProviderStub, handler: BaseHTTPRequestHandler, request: Request) -> None:
        self.stub, self.handler, self.request = stub, handler, request
        self.key = request.headers.get("idempotency-key") or f"no key {id(self)}"

    @property
    def prediction(self) -> Prediction:
        """Of an order, the one under its key; else the one in the path."""
        if self.request.method == "POST" and self.request.path == "/v1/predictions":
            return self.stub.predictions[self.stub.ordered(self.key, self.request.body)]
        return self.stub.predictions[unquote(self.request.path.split("/")[3])]

    def reply(self, status: int, body: bytes | Any = b"", headers: dict[str, str] | None = None) -> None:
        kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.handler.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **kind, **(headers or {})}.items():
            self.handler.send_header(name, text)
        self.handler.end_headers()
        self.write(data)

    def write(self, data: bytes) -> None:
        self.handler.wfile.write(data)

    def hang_up(self) -> None:
        self.handler.close_connection = True
        self.handler.connection.shutdown(socket.SHUT_RDWR)


Answering = Callable[[Exchange], None]


# -- usual answers -----------------------------------------------------------------------------------------------------


def image_base64(exchange: Exchange) -> None:
    data = exchange.stub.pay(exchange.key, exchange.request.body)
    exchange.reply(200, {"created": 1, "data": [{"b64_json": b64encode(data).decode()}]})


def image_url(exchange: Exchange) -> None:
    exchange.stub.pay(exchange.key, exchange.request.body)
    exchange.reply(200, {"created": 1, "data": [{"url": exchange.stub.image_url(exchange.key)}]})


def prediction(exchange: Exchange) -> None:
    """201 and the prediction, after the webhooks that come too early."""
    made = exchange.prediction
    if exchange.stub.webhooks_before_answer:
        exchange.stub.end(made.id, "succeeded", webhooks=exchange.stub.webhooks_before_answer)
    exchange.reply(201, exchange.stub.shown(made))


def current(exchange: Exchange) -> None:
    """A poll: the prediction after it has moved on."""
    made = exchange.prediction
    was = made.status
    made.move_on()
    exchange.reply(200, exchange.stub.shown(made))
    if made.status in ENDED and was not in ENDED:
        exchange.stub.send_webhook(made.id, exchange.stub.webhooks_at_end)


def image_bytes(exchange: Exchange) -> None:
    data = exchange.stub.images[unquote(exchange.request.path.removeprefix("/images/").removesuffix(".png"))]
    exchange.reply(200, data, {"Content-Type": "image/png"})


# -- faults ------------------------------------------------------------------------------------------------------------


def status(code: int, body: bytes | Any = b"", **headers: str) -> Answering:
    """`retry_after="5"` is the header `retry-after`."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda exchange: exchange.reply(code, body, named)


def error(code: int, name: str, text: str = "no", **headers: str) -> Answering:
    return status(code, {"error": {"code": name, "type": "invalid_request_error", "message": text}}, **headers)


def throttled(retry_after: str | None = None) -> Answering:
    headers = {} if retry_after is None else {"retry_after": retry_after}
    return error(429, "rate_limit_exceeded", "Rate limit reached.", **headers)


no_quota = error(429, "insufficient_quota", "You exceeded your current quota.")
unsafe = error(400, "content_policy_violation", "Your request was rejected by the safety system.")
html = status(200, b"<html><body>Welcome</body></html>", content_type="text/html")


def raw(*pieces: bytes) -> Answering:
    """These bytes in the place of HTTP, and the end of the connection."""

    def answer(exchange: Exchange) -> None:
        for piece in pieces:
            exchange.write(piece)
        exchange.hang_up()

    return answer


hangs_up = raw()


def silent(seconds: float) -> Answering:
    """No answer for so long, or until the stub ends."""

    def answer(exchange: Exchange) -> None:
        exchange.stub.ended.wait(seconds)
        exchange.hang_up()

    return answer


def paid_and_silent(seconds: float) -> Answering:
    """The image is made and charged, and the answer is lost."""

    def answer(exchange: Exchange) -> None:
        exchange.stub.order(exchange)
        silent(seconds)(exchange)

    return answer


def paid_and_lost(exchange: Exchange) -> None:
    exchange.stub.order(exchange)
    exchange.hang_up()


def short(body: bytes = b"x" * 10, length: int = 100) -> Answering:
    """A body that is shorter than its Content-Length says."""
    return raw(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode(), body)


def endless(size: int = 10**9, *, with_length: bool = False) -> Answering:
    """A body of so many bytes. `stub.bytes_sent` counts those that the client took."""

    def answer(exchange: Exchange) -> None:
        length = f"Content-Length: {size}\r\n" if with_length else ""
        exchange.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{length}\r\n".encode())
        exchange.handler.close_connection = True
        for _ in range(0, size, len(PIECE)):
            exchange.write(PIECE)
            exchange.stub.bytes_sent += len(PIECE)

    return answer


def redirect(location: str, code: int = 302) -> Answering:
    """To a URL. `stub.redirecting_url(50)` redirects so many times by itself before its image."""
    return status(code, location=location)


# -- the provider ------------------------------------------------------------------------------------------------------


@dataclass
class ProviderStub:
    url: str = ""
    secret: str = SECRET
    creates: list[Answering] = field(default_factory=list)
    polls: list[Answering] = field(default_factory=list)
    downloads: list[Answering] = field(default_factory=list)
    otherwise_create: Answering | None = None  # None: `image_base64`, or `prediction`
    otherwise_poll: Answering = current
    otherwise_download: Answering = image_bytes
    progress: list[str] = field(default_factory=lambda: ["starting", "processing", "succeeded"])
    cost: float | None = None  # of a prediction, in its answer
    webhooks_before_answer: int = 0
    webhooks_at_end: int = 0
    webhooks_after_cancel: int = 0
    # What happened.
    requests: list[Request] = field(default_factory=list)
    paid: Counter[str] = field(default_factory=Counter)  # images by idempotency key
    images: dict[str, bytes] = field(default_factory=dict)  # by idempotency key
    predictions: dict[str, Prediction] = field(default_factory=dict)  # by id
    webhook_statuses: list[int] = field(default_factory=list)
    bytes_sent: int = 0  # by `endless`
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def poll_url(self) -> str:
        return f"{self.url}/v1/predictions"

    def image_url(self, key: str) -> str:
        return f"{self.url}/images/{key}.png"

    def redirecting_url(self, times: int, key: str = "redirected") -> str:
        self.images.setdefault(key, drawn(key, 64, 64))
        return f"{self.url}/redirects/{times}/{key}"

    def of(self, method: str, path: str = "/") -> list[Request]:
        """The requests whose path begins so."""
        return [each for each in self.requests if each.method == method and each.path.startswith(path)]

    def pay(self, key: str, order: dict[str, Any]) -> bytes:
        """Make the image of an order, once for each key."""
        with self._lock:
            if key not in self.images:
                self.images[key] = drawn(key, *_size(order))
                self.paid[key] += 1
            return self.images[key]

    def ordered(self, key: str, order: dict[str, Any]) -> str:
        """The id of the prediction under this key, which is created if there is none."""
        with self._lock:
            known = next((each.id for each in self.predictions.values() if each.key == key), None)
            if known is not None:
                return known
            self.pay(key, order["input"])
            made = Prediction(
                f"p{len(self.predictions) + 1}", key, order["input"], order.get("webhook"), [*self.progress]
            )
            self.predictions[made.id] = made
            return made.id

    def order(self, exchange: Exchange) -> None:
        """What an order does, without its answer."""
        if "input" in exchange.request.body:
            self.ordered(exchange.key, exchange.request.body)
        else:
            self.pay(exchange.key, exchange.request.body)

    def shown(self, made: Prediction) -> dict[str, Any]:
        """A prediction as the API shows it."""
        output = made.output if made.output is not None else [self.image_url(made.key)]
        url = f"{self.poll_url}/{made.id}"
        shown = {"id": made.id, "status": made.status, "urls": {"get": url, "cancel": f"{url}/cancel"}}
        cost = {} if self.cost is None else {"metrics": {"cost": self.cost}}
        return {**shown, "output": output if made.status == "succeeded" else None, "error": made.error, **cost}

    def end(self, name: str, status: str = "succeeded", *, error: Any = None, webhooks: int | None = None) -> None:
        made = self.predictions[name]
        made.progress, made.error = [status], error
        self.send_webhook(name, self.webhooks_at_end if webhooks is None else webhooks)

    def send_webhook(self, name: str, times: int = 1, *, secret: str = "", webhook_id: str = "") -> list[int]:
        """Send the prediction as it is now; each has an id of its own, unless one is given."""
        made = self.predictions[name]
        if made.webhook is None:
            return []
        body = json.dumps(self.shown(made))
        statuses = [self._post(made.webhook, body, secret, webhook_id or f"msg_{name}_{n}") for n in range(times)]
        self.webhook_statuses += statuses
        return statuses

    def _post(self, url: str, body: str, secret: str, webhook_id: str) -> int:
        """0: nobody answered."""
        parts, now = urlsplit(url), datetime.fromtimestamp(int(time.time()), UTC)
        key = secret or self.secret
        signature = Webhook(key if key.startswith("whsec_") else key.encode()).sign(webhook_id, now, body)
        headers = {
            "content-type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signature,
        }
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            connection.request("POST", path, body.encode(), headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def answer(self, exchange: Exchange) -> None:
        method, path = exchange.request.method, exchange.request.path
        with self._lock:
            self.requests.append(exchange.request)
            answering = self._answering(method, path)
        answering(exchange)

    def _answering(self, method: str, path: str) -> Answering:
        if method == "POST" and path == "/v1/images/generations":
            return _next(self.creates, self.otherwise_create or image_base64)
        if method == "POST" and path == "/v1/predictions":
            return _next(self.creates, self.otherwise_create or prediction)
        if path.startswith("/v1/predictions/"):
            return _cancel if path.endswith("/cancel") else _next(self.polls, self.otherwise_poll)
        if path.startswith("/redirects/"):
            return _one_of_many_redirects
        return _next(self.downloads, self.otherwise_download) if method == "GET" else status(404)


def _next(answers: list[Answering], otherwise: Answering) -> Answering:
    return answers.pop(0) if answers else otherwise


def _cancel(exchange: Exchange) -> None:
    made, stub = exchange.prediction, exchange.stub
    if made.status not in ENDED:
        stub.end(made.id, "canceled", webhooks=0)
    exchange.reply(200, stub.shown(made))
    stub.send_webhook(made.id, stub.webhooks_after_cancel)


def _one_of_many_redirects(exchange: Exchange) -> None:
    _, _, left, key = exchange.request.path.split("/")
    stub = exchange.stub
    redirect(stub.redirecting_url(int(left) - 1, key) if int(left) > 1 else stub.image_url(key))(exchange)


def _size(order: dict[str, Any]) -> tuple[int, int]:
    if "size" in order:
        width, _, height = order["size"].partition("x")
        return int(width), int(height)
    return order.get("width", 64), order.get("height", 64)


def drawn(key: str, width: int, height: int) -> bytes:
    """A PNG that looks different for each key."""
    picture = Image.frombytes("RGB", (8, 8), hashlib.shake_256(key.encode()).digest(8 * 8 * 3))
    file = io.BytesIO()
    picture.resize((width, height), Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up: nothing to report."""


@contextmanager
def provider_stub(port: int = 0) -> Iterator[ProviderStub]:
    stub = ProviderStub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, json.loads(text) if text else None)
            stub.answer(Exchange(stub, self, request))

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    with _Server(("127.0.0.1", port), Handler) as server:
        stub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            stub.ended.set()
            server.shutdown()
            thread.join()
