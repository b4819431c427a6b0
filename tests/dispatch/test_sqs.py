"""The SQS broker against a server that speaks SQS: what it carries, gives back, throws away, and what it cannot do."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from botocore.exceptions import ClientError

from holdfast.dispatch import sqs as module
from holdfast.dispatch.broker import BrokerError, ReceivedHint, SubscriptionLost
from holdfast.dispatch.sqs import SqsBroker
from holdfast.errors import Invalid
from holdfast.model.hint import Hint
from tests.dispatch.sqs_admin import DEAD, QUEUE, SqsAdmin
from tests.docs.pages import blocks
from tests.servers.aws import AwsServer

pytestmark = pytest.mark.usefixtures("long_sqs_timeout")

MAIL = Hint("mail", "SEND_EMAIL", "0198a000-0000-7000-8000-000000000001")

Opener = Callable[..., Awaitable[SqsBroker]]


@pytest.fixture
async def opened(aws_server: AwsServer) -> AsyncIterator[Opener]:
    """Makes brokers, and closes them in the end."""
    async with AsyncExitStack() as stack:

        async def make() -> SqsBroker:
            broker = SqsBroker(QUEUE, aws_server.url)
            stack.push_async_callback(broker.close)
            await broker.open()
            return broker

        yield make


@pytest.fixture
async def admin(aws_server: AwsServer) -> AsyncIterator[SqsAdmin]:
    async with SqsAdmin.of(aws_server) as admin:
        yield admin


def hints(deliveries: list[ReceivedHint]) -> list[Hint]:
    return [delivery.hint for delivery in deliveries]


async def all_of(broker: SqsBroker) -> list[ReceivedHint]:
    found: list[ReceivedHint] = []
    while came := await broker.receive(0, 10):
        found += came
    return found


# -- carrying ----------------------------------------------------------------------------------------------------------


async def test_an_acknowledged_hint_is_deleted(opened: Opener, admin: SqsAdmin) -> None:
    """R000-4: a message is a trigger. More than ten go in several requests."""
    sender, worker = await opened(), await opened()
    sent = [MAIL._replace(queue=f"queue-{number}") for number in range(25)]
    await sender.send(sent)
    found = await all_of(worker)
    assert sorted(hints(found)) == sorted(sent)
    await worker.ack(found)
    assert await admin.messages() == 0


async def test_a_waiting_receiver_gets_a_new_hint(opened: Opener) -> None:
    sender, worker = await opened(), await opened()
    waiting = asyncio.create_task(worker.receive(20, 10))
    await asyncio.sleep(0.05)
    await sender.send([MAIL])
    assert hints(await asyncio.wait_for(waiting, 60)) == [MAIL]


async def test_an_unacknowledged_hint_is_delivered_again(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """R000-5, S13"""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 1)
    dying, other = await opened(), await opened()
    await other.send([MAIL])
    assert await dying.receive(5, 10)
    await dying.close()
    assert hints(await other.receive(20, 10)) == [MAIL]


async def test_duplicate_acks_and_stale_receipts_are_ignored(
    opened: Opener, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R000-34, F30: whoever was too slow deletes nothing, and whoever got it next does."""
    monkeypatch.setattr(module, "INVISIBLE_SECONDS", 1)
    slow, quick = await opened(), await opened()
    await slow.send([MAIL, MAIL])
    too_late = await slow.receive(5, 10)
    again: list[ReceivedHint] = []
    while len(again) < 2:
        again += await quick.receive(20, 10)
    await slow.ack(too_late)
    await quick.ack(again)
    await quick.ack(again)
    assert hints(too_late) == hints(again) == [MAIL, MAIL]
    assert await admin.messages() == 0


# -- what nobody wants -------------------------------------------------------------------------------------------------


async def test_a_hint_that_every_reader_returns_is_dead_lettered(
    opened: Opener, admin: SqsAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else becomes one."""
    monkeypatch.setattr(module, "GIVEN_BACK_SECONDS", (0, 0))
    broker = await opened()
    await broker.send([MAIL])
    for _ in range(module.RECEIVES_MAX):
        came = await broker.receive(5, 10)
        assert hints(came) == [MAIL]
        await broker.nack(came)
    assert await broker.receive(0, 10) == []
    assert (await admin.messages(), await admin.messages(DEAD)) == (0, 1)


async def test_a_returned_hint_is_delayed_longer_each_time(opened: Opener, admin: SqsAdmin) -> None:
    """Those it is for may be busy: it is not to be a dead letter a moment later."""
    broker = await opened()
    await broker.send([MAIL])
    came = await broker.receive(5, 10)
    assert [delivery.receipt.pause for delivery in came] == [1]
    await broker.nack(came)
    again = await broker.receive(20, 10)
    assert [delivery.receipt.pause for delivery in again] == [4]
    assert await admin.messages(DEAD) == 0


async def test_a_malformed_message_is_deleted_and_counted(opened: Opener, admin: SqsAdmin) -> None:
    """SEC-23, F30"""
    broker = await opened()
    await admin.send("null", "{}", "[" * 1000, "x" * 100_000, '["q",null,"no id",0]', "☃")
    await broker.send([MAIL])
    found = await all_of(broker)
    assert hints(found) == [MAIL]
    assert broker.garbage == 6
    await broker.ack(found)
    assert (await admin.messages(), await admin.messages(DEAD)) == (0, 0)


# -- the queue ---------------------------------------------------------------------------------------------------------


async def test_the_queue_is_created_with_a_dead_letter_queue(opened: Opener, admin: SqsAdmin) -> None:
    await asyncio.gather(*(opened() for _ in range(5)))
    attributes = await admin.attributes()
    redrive = json.loads(attributes["RedrivePolicy"])
    assert attributes["VisibilityTimeout"] == "30"
    assert int(redrive["maxReceiveCount"]) == 5
    assert redrive["deadLetterTargetArn"] == (await admin.attributes(DEAD))["QueueArn"]


async def test_an_existing_queue_keeps_its_configuration(opened: Opener, admin: SqsAdmin) -> None:
    await admin.client.create_queue(QueueName=QUEUE, Attributes={"VisibilityTimeout": "77"})
    broker = await opened()
    await broker.send([MAIL])
    await broker.ack(await broker.receive(5, 10))
    attributes = await admin.attributes()
    assert attributes["VisibilityTimeout"] == "77"
    assert "RedrivePolicy" not in attributes


async def test_a_deleted_queue_is_reported_and_created_again(opened: Opener, aws_server: AwsServer) -> None:
    broker = await opened()
    aws_server.reset()
    for call in (broker.receive(0, 10), broker.send([MAIL])):
        with pytest.raises(SubscriptionLost):
            await call
    await broker.open()
    await broker.send([MAIL])
    assert hints(await broker.receive(5, 10)) == [MAIL]


async def test_a_purged_queue_continues_to_work(opened: Opener, admin: SqsAdmin) -> None:
    broker = await opened()
    await broker.send([MAIL])
    await admin.client.purge_queue(QueueUrl=await admin.url())
    assert await broker.receive(0, 10) == []


# -- trouble -----------------------------------------------------------------------------------------------------------


async def test_every_call_to_a_dead_server_ends_with_an_error(opened: Opener, aws_server: AwsServer) -> None:
    """L6"""
    broker = await opened()
    await broker.send([MAIL])
    came = await broker.receive(5, 1)
    aws_server.stop(kill=True)
    for call in (
        broker.open(),
        broker.send([MAIL]),
        broker.receive(20, 1),
        broker.ack(came),
        broker.nack(came),
    ):
        with pytest.raises(BrokerError):
            await asyncio.wait_for(call, 60)
    aws_server.start()
    await broker.open()
    await broker.ack(came)  # of a message that is no more
    await broker.send([MAIL])
    assert hints(await broker.receive(5, 1)) == [MAIL]


async def test_every_call_to_a_frozen_server_times_out(
    opened: Opener, aws_server: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F11"""
    broker = await opened()
    monkeypatch.setattr(module, "CALL_SECONDS", 0.3)
    with aws_server.frozen():
        await asyncio.sleep(0.1)  # all of its threads
        calls = [broker.open(), broker.send([MAIL]), broker.receive(1, 1)]
        ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    assert [type(end) for end in ends] == [BrokerError] * 3


async def test_closing_ends_a_wait_at_once(opened: Opener) -> None:
    broker = await opened()
    waiting = asyncio.create_task(broker.receive(20, 10))
    await asyncio.sleep(0.05)
    await broker.close()
    with pytest.raises(BrokerError):
        await asyncio.wait_for(waiting, 60)


class Answering:
    """In the place of the client: it says what SQS says at times."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        async def call(**fields: Any) -> dict[str, Any]:
            self.asked.append(fields)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return call


async def test_a_batch_with_rejected_entries_sends_the_others_and_raises(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is answered one by one: SQS may throttle a few of ten."""
    broker = await opened()
    said = Answering({"Failed": [{"Id": "3", "Code": "RequestThrottled", "SenderFault": False}]})
    with monkeypatch.context() as patched:
        patched.setattr(broker, "_client", said)
        with pytest.raises(BrokerError, match="2 of 15: RequestThrottled"):
            await broker.send([MAIL] * 15)
    assert [len(asked["Entries"]) for asked in said.asked] == [10, 5]


@pytest.mark.parametrize("code", ["RequestThrottled", "ThrottlingException", "AccessDenied", "OverLimit"])
async def test_an_sqs_error_is_raised_with_its_code(opened: Opener, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """F30: throttling, and 120,000 messages in flight."""
    broker = await opened()
    refusal = ClientError({"Error": {"Code": code, "Message": "no"}}, "ReceiveMessage")
    with monkeypatch.context() as patched:
        patched.setattr(broker, "_client", Answering(refusal))
        with pytest.raises(BrokerError, match=code):
            await broker.receive(5, 10)


async def test_the_documented_permissions_are_sufficient(opened: Opener) -> None:
    """SEC-23"""
    found = [block for block in blocks("docs/operate/brokers.md", "json") if block.heading == "SQS"]
    (policy,) = [json.loads(block.text) for block in found]
    granted = {action for statement in policy["Statement"] for action in statement["Action"]}
    done: set[str] = set()
    broker = await opened()
    broker._client.meta.events.register(
        "before-call.sqs", lambda model, **_: done.add(f"sqs:{model.name.removesuffix('Batch')}")
    )
    broker._url = await broker._create()
    await broker.open()
    await broker.send([MAIL])
    await broker.nack(await broker.receive(5, 1))
    await broker.ack(await broker.receive(20, 1))
    assert done == granted


# -- what it must be told ----------------------------------------------------------------------------------------------


async def test_missing_credentials_are_an_error_that_names_them(
    aws_server: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    broker = SqsBroker(QUEUE, aws_server.url)
    with pytest.raises(BrokerError, match="no AWS credentials"):
        await broker.open()
    await broker.close()


async def test_a_missing_region_is_an_error_that_names_it(
    aws_server: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(Invalid, match="AWS_DEFAULT_REGION"):
        SqsBroker(QUEUE, aws_server.url)


@pytest.mark.parametrize("name", ["", "hints.fifo", "https://sqs.example.com/1/hints", "x" * 76])
def test_an_invalid_queue_name_is_an_error_at_once(name: str) -> None:
    with pytest.raises(Invalid, match="HOLDFAST_SQS_QUEUE"):
        SqsBroker(name)
