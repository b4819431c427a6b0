"""Who is told: subscribing, changing, secrets."""

import asyncio
from base64 import b64decode

import asyncpg
import pytest

from holdfast.clock import Clock, MovableClock
from holdfast.engine import Engine
from holdfast.engine.webhooks.webhooks import NewWebhook
from holdfast.errors import Conflict, Invalid, NotFound, UnknownName
from holdfast.ids import SeededIds
from holdfast.model.webhook import ENDINGS, WebhookFilter
from holdfast.store import open_store
from tests.engine.steps import UNKNOWN_ID
from tests.webhooks.steps import NOWHERE, subscribe


async def test_the_default_event_types_are_the_four_final_states(engine: Engine) -> None:
    made = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE, name="books"))
    assert made.webhook.wanted == WebhookFilter(events=ENDINGS)
    assert made.webhook.enabled
    assert await engine.webhooks.get(made.webhook.id) == made.webhook
    assert await engine.webhooks.all() == [made.webhook]


async def test_secrets_have_256_bits_and_are_unique(engine: Engine) -> None:
    """SEC-29."""
    first, second = [(await engine.webhooks.subscribe(NewWebhook(url=NOWHERE))).secret for _ in range(2)]
    assert first != second
    assert first.startswith("whsec_")
    assert len(b64decode(first.removeprefix("whsec_"), validate=True)) == 32


async def test_no_repr_shows_a_secret(engine: Engine) -> None:
    made = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE))
    assert made.secret not in repr(await engine.webhooks.all())
    assert made.secret not in repr(made)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"wanted": WebhookFilter(events=("job.exploded",))}, UnknownName),
        ({"wanted": WebhookFilter(job_types=[""])}, Invalid),
        ({"wanted": WebhookFilter(queues=[" spaces "])}, Invalid),
        ({"name": "\n"}, Invalid),
        ({"tenant": ""}, Invalid),
    ],
)
async def test_an_invalid_webhook_is_rejected(engine: Engine, fields: dict, error: type[Invalid]) -> None:
    with pytest.raises(error):
        await engine.webhooks.subscribe(NewWebhook(url=NOWHERE, **fields))
    assert await engine.webhooks.all() == []


async def test_an_update_keeps_the_other_fields(engine: Engine) -> None:
    webhook, other = await subscribe(engine), await subscribe(engine)
    changed = await engine.webhooks.change(webhook, name="books", wanted={"queues": ["mail"]})
    assert (changed.name, changed.wanted.queues) == ("books", ["mail"])
    assert changed.url == NOWHERE
    assert len(changed.wanted.events) == 8
    assert (await engine.webhooks.get(other)).name is None


async def test_concurrent_updates_are_both_applied(engine: Engine) -> None:
    webhook = await subscribe(engine)
    await asyncio.gather(
        engine.webhooks.change(webhook, wanted={"queues": ["mail"]}),
        engine.webhooks.change(webhook, wanted={"job_types": ["T"]}),
        engine.webhooks.rotate(webhook),
    )
    found = await engine.webhooks.get(webhook)
    assert (found.wanted.queues, found.wanted.job_types, len(found.secrets)) == (["mail"], ["T"], 2)


async def test_an_update_does_not_wait_for_an_update_of_another_webhook(fresh_postgres_url: str) -> None:
    engine = Engine(await open_store(fresh_postgres_url, Clock(), SeededIds(7)))
    other = await asyncpg.connect(fresh_postgres_url)
    try:
        webhook, held = await subscribe(engine), await subscribe(engine)
        async with other.transaction():
            await other.execute("SELECT 1 FROM holdfast_webhooks WHERE id = $1 FOR UPDATE", held)
            async with asyncio.timeout(60):
                assert (await engine.webhooks.change(webhook, name="books")).name == "books"
    finally:
        await other.close()
        await engine.close()


async def test_the_old_secret_signs_for_a_day_after_rotation(engine: Engine, clock: MovableClock) -> None:
    """SEC-29."""
    first = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE))
    webhook = first.webhook.id
    clock.advance(100)
    second = await engine.webhooks.rotate(webhook)
    assert (await engine.webhooks.get(webhook)).signing(clock.now()) == [second.secret, first.secret]
    clock.advance(86_401)
    assert (await engine.webhooks.get(webhook)).signing(clock.now()) == [second.secret]
    third = await engine.webhooks.rotate(webhook)
    assert [secret.text for secret in third.webhook.secrets] == [third.secret, second.secret]


async def test_a_rotation_can_end_the_old_secret_at_once(engine: Engine, clock: MovableClock) -> None:
    webhook = await subscribe(engine)
    newest = await engine.webhooks.rotate(webhook, overlap_seconds=0)
    assert newest.webhook.signing(clock.now()) == [newest.secret]
    newest = await engine.webhooks.rotate(webhook)
    assert len(newest.webhook.signing(clock.now())) == 2
    changed = await engine.webhooks.change(webhook, drop_old_secrets=True)
    assert changed.signing(clock.now()) == [newest.secret]


async def test_a_second_rotation_does_not_extend_the_first_secret(engine: Engine, clock: MovableClock) -> None:
    first = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE))
    await engine.webhooks.rotate(first.webhook.id)
    clock.advance(86_000)
    rotated = await engine.webhooks.rotate(first.webhook.id)
    clock.advance(401)
    assert first.secret not in rotated.webhook.signing(clock.now())


async def test_deleting_a_webhook_keeps_the_others(engine: Engine) -> None:
    webhook, other = await subscribe(engine), await subscribe(engine)
    await engine.webhooks.delete(webhook)
    assert [hook.id for hook in await engine.webhooks.all()] == [other]
    for unknown in (webhook, UNKNOWN_ID, "no id"):
        with pytest.raises(NotFound):
            await engine.webhooks.get(unknown)
        with pytest.raises(NotFound):
            await engine.webhooks.delete(unknown)
        with pytest.raises(NotFound):
            await engine.webhooks.change(unknown, enabled=False)


async def test_the_number_of_webhooks_is_limited(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.webhooks.webhooks.WEBHOOKS_MAX", 1)
    await subscribe(engine)
    with pytest.raises(Conflict) as refused:
        await subscribe(engine)
    assert refused.value.code == "too_many_webhooks"


async def test_operator_actions_are_audited_without_secrets(engine: Engine) -> None:
    made = await engine.webhooks.subscribe(NewWebhook(url=NOWHERE), by="alice")
    rotated = await engine.webhooks.rotate(made.webhook.id, by="bob")
    await engine.webhooks.change(made.webhook.id, by="bob", enabled=False)
    await engine.webhooks.delete(made.webhook.id, by="carol")
    lines = (await engine.audit.page()).lines[::-1]
    assert [(line.actor, line.action) for line in lines] == [
        ("alice", "webhook.create"),
        ("bob", "webhook.rotate"),
        ("bob", "webhook.change"),
        ("carol", "webhook.delete"),
    ]
    assert made.secret not in repr(lines)
    assert rotated.secret not in repr(lines)
