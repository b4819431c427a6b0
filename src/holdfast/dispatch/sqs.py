"""The Amazon SQS broker: one queue that all workers share, and a dead-letter queue.

A message is deleted as soon as a worker has polled the database because of it. The visibility timeout is independent of
the duration of jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.dispatch.broker import BrokerError, ReceivedHint, SubscriptionLost
from holdfast.dispatch.messages import read, written
from holdfast.errors import Invalid
from holdfast.model.hint import Hint

DEAD = "-dead"  # suffix of the dead-letter queue
RECEIVES_MAX = 5
INVISIBLE_SECONDS = 30  # then an unacknowledged hint is delivered again
KEPT_SECONDS = 3600
GIVEN_BACK_SECONDS = (1, 4, 16, 64)  # visibility timeout of a returned hint: its workers may be busy for a while
WAIT_MAX_SECONDS, BATCH = 20, 10  # limits of SQS
CONNECT_SECONDS, CALL_SECONDS = 2.0, 3.0

NO_QUEUE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
STALE = "ReceiptHandleIsInvalid"  # the message was delivered again to another worker, which deletes it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}")
_ENDPOINT = re.compile(r"https?://[^\s/]")


class Receipt(NamedTuple):
    handle: str
    received: int  # number of deliveries so far

    @classmethod
    def of(cls, message: dict[str, Any]) -> Receipt:
        return cls(message["ReceiptHandle"], int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1)))

    @property
    def pause(self) -> int:
        """Seconds until it is delivered to another worker."""
        return GIVEN_BACK_SECONDS[min(self.received, len(GIVEN_BACK_SECONDS)) - 1]


class SqsBroker:
    """Region and credentials come from the AWS library's defaults. SQS has no priorities."""

    def __init__(self, queue: str, endpoint_url: str = "") -> None:
        if not _NAME.fullmatch(queue):
            raise Invalid(
                f"HOLDFAST_SQS_QUEUE is the name of a standard queue, 1 to 75 letters, digits, - and _; got {queue!r}",
                code="invalid_setting",
            )
        if endpoint_url and not _ENDPOINT.match(endpoint_url):
            raise Invalid(
                "HOLDFAST_SQS_ENDPOINT_URL is invalid; write it like https://HOST:PORT", code="invalid_setting"
            )
        self.garbage = 0
        self._queue = queue
        self._create_client = _clients(endpoint_url)
        self._client: Any = None
        self._url = ""
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        with _translated_errors():
            async with asyncio.timeout(CALL_SECONDS), self._opening:
                if self._client is None:
                    self._client = await self._create_client().__aenter__()
                self._url = await self._find() or await self._create()

    async def send(self, hints: list[Hint]) -> None:
        await self._in_batches("send_message_batch", [{"MessageBody": written(hint).decode()} for hint in hints])

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """At most ten messages, and the wait is in whole seconds: limits of SQS."""
        wait = min(WAIT_MAX_SECONDS, math.ceil(seconds))
        answer = await self._call(
            "receive_message",
            wait,
            MaxNumberOfMessages=min(BATCH, most),
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        came = [(read(message["Body"]), Receipt.of(message)) for message in answer.get("Messages", [])]
        await self._drop([receipt for hint, receipt in came if hint is None])
        return [ReceivedHint(hint, receipt) for hint, receipt in came if hint]

    async def ack(self, received: list[ReceivedHint]) -> None:
        await self._delete([delivery.receipt for delivery in received])

    async def nack(self, received: list[ReceivedHint]) -> None:
        """Deliver to another worker. After several deliveries it goes to the dead-letter queue."""
        receipts = [delivery.receipt for delivery in received]
        entries = [{"ReceiptHandle": each.handle, "VisibilityTimeout": each.pause} for each in receipts]
        await self._in_batches("change_message_visibility_batch", entries)

    async def close(self) -> None:
        """Also ends a waiting receive."""
        client, self._client, self._url = self._client, None, ""
        if client:
            await client.close()

    async def _find(self) -> str | None:
        try:
            return str((await self._client.get_queue_url(QueueName=self._queue))["QueueUrl"])
        except self._client.exceptions.QueueDoesNotExist:
            return None

    async def _create(self) -> str:
        """Another process may create them at the same time: with equal attributes that is no error."""
        dead = await self._client.create_queue(QueueName=self._queue + DEAD)
        attributes_of_dead = await self._client.get_queue_attributes(
            QueueUrl=dead["QueueUrl"], AttributeNames=["QueueArn"]
        )
        redrive = {"deadLetterTargetArn": attributes_of_dead["Attributes"]["QueueArn"], "maxReceiveCount": RECEIVES_MAX}
        attributes = {
            "VisibilityTimeout": str(INVISIBLE_SECONDS),
            "MessageRetentionPeriod": str(KEPT_SECONDS),
            "RedrivePolicy": json.dumps(redrive),
        }
        made = await self._client.create_queue(QueueName=self._queue, Attributes=attributes)
        return str(made["QueueUrl"])

    async def _drop(self, garbage: list[Receipt]) -> None:
        self.garbage += len(garbage)
        with contextlib.suppress(BrokerError):  # then it is delivered again; the other messages are still processed
            await self._delete(garbage)

    async def _delete(self, receipts: list[Receipt]) -> None:
        await self._in_batches("delete_message_batch", [{"ReceiptHandle": receipt.handle} for receipt in receipts])

    async def _in_batches(self, name: str, entries: list[dict[str, Any]]) -> None:
        """All batches are sent before failures are raised."""
        numbered = [{"Id": str(number)} | entry for number, entry in enumerate(entries)]
        batches = [numbered[start : start + BATCH] for start in range(0, len(entries), BATCH)]
        answers = await asyncio.gather(*(self._call(name, Entries=batch) for batch in batches))
        reasons = [each["Code"] for answer in answers for each in answer.get("Failed", []) if each["Code"] != STALE]
        if reasons:
            raise BrokerError(f"SQS rejected {len(reasons)} of {len(entries)}: {', '.join(sorted(set(reasons)))}")

    async def _call(self, name: str, wait: float = 0, **fields: Any) -> dict[str, Any]:
        if not self._url:
            await self.open()
        with _translated_errors():
            async with asyncio.timeout(wait + CALL_SECONDS):
                answer: dict[str, Any] = await getattr(self._client, name)(QueueUrl=self._url, **fields)
                return answer


def _clients(endpoint_url: str) -> Callable[[], Any]:
    """Without the library's retries: the circuit breaker retries."""
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    session = get_session()
    if not session.get_config_variable("region"):
        raise Invalid("no AWS region: set AWS_DEFAULT_REGION, or a region in the AWS profile", code="invalid_setting")
    read_timeout = WAIT_MAX_SECONDS + CALL_SECONDS
    config = AioConfig(connect_timeout=CONNECT_SECONDS, read_timeout=read_timeout, retries={"total_max_attempts": 1})
    return lambda: session.create_client("sqs", endpoint_url=endpoint_url or None, config=config)


@contextlib.contextmanager
def _translated_errors() -> Iterator[None]:
    """AWS errors as `BrokerError`, without the endpoint URL, which may contain a password."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # type: ignore[import-untyped]

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in NO_QUEUE:
            raise SubscriptionLost("the queue of hints does not exist") from error
        raise BrokerError(f"SQS: {error.operation_name} failed with {code}") from error
    except TimeoutError as error:
        raise BrokerError("SQS call timed out") from error
    except NoCredentialsError as error:
        raise BrokerError("no AWS credentials: set AWS_ACCESS_KEY_ID, a profile, or an instance role") from error
    except (BotoCoreError, OSError) as error:
        raise BrokerError(f"SQS is unreachable ({type(error).__name__})") from error
