"""A newcomer who types what Celery calls it is told what it is called here."""

import pytest

from holdfast import App, JobHandle
from holdfast.sdk.celery_names import INSTEAD
from holdfast.sdk.definitions import Definition

app = App()


@app.job()
async def send_email(to: str) -> None: ...


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("app.task", "write @app.job(...) above the function"),
        ("send_email.delay", "await send_email.enqueue(...), or send_email.enqueue_sync(...)"),
        ("send_email.apply_async", "await send_email.options(delay=..., queue=...).enqueue(...)"),
        ("send_email.options(delay=3).delay", "await send_email.enqueue(...)"),
        ("app.job_handle('1').revoke", "await job.cancel()"),
    ],
)
def test_a_celery_method_name_raises_with_the_holdfast_equivalent(typed: str, told: str) -> None:
    with pytest.raises(AttributeError) as caught:
        eval(typed, {"app": app, "send_email": send_email})
    assert "has no attribute" in str(caught.value)
    assert told in str(caught.value)


def test_no_celery_hint_hides_an_existing_attribute() -> None:
    things = {"App": app, "Definition": send_email, "JobHandle": app.job_handle("1")}
    assert {type(thing).__name__ for thing in things.values()} == INSTEAD.keys()
    for kind, names in INSTEAD.items():
        assert not [name for name in names if hasattr(things[kind], name)]


@pytest.mark.parametrize("thing", [app, send_email, app.job_handle("1")])
def test_any_other_missing_attribute_raises_a_plain_attribute_error(
    thing: App | Definition[..., None] | JobHandle[None],
) -> None:
    with pytest.raises(AttributeError, match=r"object has no attribute 'enqueu'$") as caught:
        thing.enqueu  # type: ignore[union-attr]  # noqa: B018
    assert caught.value.name == "enqueu", "so that Python suggests the nearest name"


def test_a_subclass_hints_too_and_may_use_such_a_name_itself() -> None:
    class Mine(App):
        conf = "mine"

        @property
        def broken(self) -> object:
            return self.nothing_of_the_sort  # type: ignore[attr-defined]

    app = Mine()
    with pytest.raises(AttributeError, match="Celery's"):
        _ = app.task  # type: ignore[attr-defined]
    assert app.conf == "mine"
    with pytest.raises(AttributeError, match="nothing_of_the_sort"):
        _ = app.broken
