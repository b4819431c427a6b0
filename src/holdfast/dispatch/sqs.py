"""Hints through Amazon SQS: one queue that all workers share, and a dead-letter queue for what none of them wanted.

A message is deleted as soon as somebody has looked into the database because of it. How long a job runs has nothing to
do with how long a message stays invisible.
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

DEAD = "-dead"  # behind the queue's name: its dead-letter queue
RECEIVES_MAX = 5
INVISIBLE_SECONDS = 30  # whoever took a hint and says nothing for so long is dead
KEPT_SECONDS = 3600
GIVEN_BACK_SECONDS = (1, 4, 16, 64)  # invisible then: those it is for may be busy for a while
WAIT_MAX_SECONDS, BATCH = 20, 10  # more than that SQS does not do
CONNECT_SECONDS, CALL_SECONDS = 2.0, 3.0

NO_QUEUE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")
STALE = "ReceiptHandleIsInvalid"  # of a message that has come again to somebody else, who will delete it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}")
_ENDPOINT = re.compile(r"https?://[^\s/]")


class Receipt(NamedTuple):
    handle: str
    received: int  # how often, so far

    @classmethod
    def of(cls, message: dict[str, Any]) -> Receipt:
        return cls(message["ReceiptHandle"], int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1)))

    @property
    def pause(self) -> int:
        """Before it is given to the next."""
        return GIVEN_BACK_SECONDS[min(self.received, len(GIVEN_BACK_SECONDS)) - 1]


class SqsBroker:
    """Region and credentials are those that the AWS library finds by itself. SQS knows no priorities."""

    def __init__(self, queue: str, endpoint_url: str = "") -> None:
        if not _NAME.fullmatch(queue):
            raise Invalid(
                f"HOLDFAST_SQS_QUEUE is the name of a standard queue, 1 to 75 letters, digits, - and _; got {queue!r}",
                code="invalid_setting",
            )
        if endpoint_url and not _ENDPOINT.match(endpoint_url):
            raise Invalid(
                "HOLDFAST_SQS_ENDPOINT_URL cannot be read; write it like https://HOST:PORT", code="invalid_setting"
            )
        self.garbage = 0
        self._queue = queue
        self._make_client = _clients(endpoint_url)
        self._client: Any = None
        self._url = ""
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        with _told():
            async with asyncio.timeout(CALL_SECONDS), self._opening:
                if self._client is None:
                    self._client = await self._make_client().__aenter__()
                self._url = await self._find() or await self._make()

    async def send(self, hints: list[Hint]) -> None:
        await self._each_ten("send_message_batch", [{"MessageBody": written(hint).decode()} for hint in hints])

    async def receive(self, seconds: float, most: int) -> list[ReceivedHint]:
        """At most ten, and the wait is in whole seconds: that is how SQS is."""
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

    async def settle(self, seen: list[ReceivedHint]) -> None:
        await self._delete([delivery.receipt for delivery in seen])

    async def give_back(self, unseen: list[ReceivedHint]) -> None:
        """To whoever asks next. One that nobody wants goes to the dead-letter queue in the end."""
        receipts = [delivery.receipt for delivery in unseen]
        entries = [{"ReceiptHandle": each.handle, "VisibilityTimeout": each.pause} for each in receipts]
        await self._each_ten("change_message_visibility_batch", entries)

    async def close(self) -> None:
        """A receive that waits ends with it."""
        client, self._client, self._url = self._client, None, ""
        if client:
            await client.close()

    async def _find(self) -> str | None:
        try:
            return str((await self._client.get_queue_url(QueueName=self._queue))["QueueUrl"])
        except self._client.exceptions.QueueDoesNotExist:
            return None

    async def _make(self) -> str:
        """Somebody else may make them at the same time: with the same attributes, that is no error."""
        dead = await self._client.create_queue(QueueName=self._queue + DEAD)
        asked = await self._client.get_queue_attributes(QueueUrl=dead["QueueUrl"], AttributeNames=["QueueArn"])
        redrive = {"deadLetterTargetArn": asked["Attributes"]["QueueArn"], "maxReceiveCount": RECEIVES_MAX}
        attributes = {
            "VisibilityTimeout": str(INVISIBLE_SECONDS),
            "MessageRetentionPeriod": str(KEPT_SECONDS),
            "RedrivePolicy": json.dumps(redrive),
        }
        made = await self._client.create_queue(QueueName=self._queue, Attributes=attributes)
        return str(made["QueueUrl"])

    async def _drop(self, garbage: list[Receipt]) -> None:
        self.garbage += len(garbage)
        with contextlib.suppress(BrokerError):  # then it comes again; what came with it is not to suffer for it
            await self._delete(garbage)

    async def _delete(self, receipts: list[Receipt]) -> None:
        await self._each_ten("delete_message_batch", [{"ReceiptHandle": receipt.handle} for receipt in receipts])

    async def _each_ten(self, name: str, entries: list[dict[str, Any]]) -> None:
        """All are tried before the failure of some is told."""
        batches = [entries[start : start + BATCH] for start in range(0, len(entries), BATCH)]
        answers = await asyncio.gather(*(self._call(name, Entries=_numbered(batch)) for batch in batches))
        reasons = [each["Code"] for answer in answers for each in answer.get("Failed", []) if each["Code"] != STALE]
        if reasons:
            raise BrokerError(f"SQS refused {len(reasons)} of {len(entries)}: {', '.join(sorted(set(reasons)))}")

    async def _call(self, name: str, wait: float = 0, **fields: Any) -> dict[str, Any]:
        if not self._url:
            await self.open()
        with _told():
            async with asyncio.timeout(wait + CALL_SECONDS):
                answer: dict[str, Any] = await getattr(self._client, name)(QueueUrl=self._url, **fields)
                return answer


def _clients(endpoint_url: str) -> Callable[[], Any]:
    """Without retries of its own: the breaker has them, and polling does not wait for them."""
    from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    session = get_session()
    if not session.get_config_variable("region"):
        raise Invalid("no AWS region: set AWS_DEFAULT_REGION, or a region in the AWS profile", code="invalid_setting")
    patience = WAIT_MAX_SECONDS + CALL_SECONDS
    config = AioConfig(connect_timeout=CONNECT_SECONDS, read_timeout=patience, retries={"total_max_attempts": 1})
    return lambda: session.create_client("sqs", endpoint_url=endpoint_url or None, config=config)


def _numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"Id": str(number)} | entry for number, entry in enumerate(entries)]


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whatever goes wrong there becomes an error of ours, without an address in it: that may hold a password."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # type: ignore[import-untyped]

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in NO_QUEUE:
            raise SubscriptionLost("the queue of hints is not there") from error
        raise BrokerError(f"SQS: {error.operation_name} was answered {code}") from error
    except TimeoutError as error:
        raise BrokerError("SQS did not answer in time") from error
    except NoCredentialsError as error:
        raise BrokerError(
            "no AWS credentials: set AWS_ACCESS_KEY_ID, a profile, or give this machine a role"
        ) from error
    except (BotoCoreError, OSError) as error:
        raise BrokerError(f"SQS cannot be reached ({type(error).__name__})") from error
