"""The payload that `holdfast dev` suggests is one that the handler would take."""

import json
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from holdfast import App, Context
from holdfast.cli.sample_payload import sample


class Colour(Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "text"),
        (int, 1),
        (float, 1.5),
        (bool, True),
        (int | None, None),
        (int | str, 1),
        (list[int], []),
        (dict[str, int], {}),
        (tuple[int, str], [1, "text"]),
        (Literal["b", "a"], "a"),
        (Colour, "red"),
        (Point, {"x": 1}),
        (UUID, "01985b2e-6f0a-7c31-9f5e-3d2a1b0c9e8f"),
        (datetime, "2026-01-31T12:00:00Z"),
        (Any, "anything"),
    ],
)
def test_each_required_parameter_has_a_value_of_its_kind(kind: Any, value: Any) -> None:
    app = App()

    @app.job()
    async def echo(ctx: Context, said: kind, left_out: int = 5) -> None: ...

    name, payload = sample(list(app.handlers.values()))
    assert (name, json.loads(payload)) == ("echo", {"said": value})


def test_the_name_of_a_text_parameter_selects_the_sample() -> None:
    app = App()

    @app.job()
    async def send(to: str, url: str, name: Literal["b"]) -> None: ...

    _, payload = sample(list(app.handlers.values()))
    assert json.loads(payload) == {"to": "ada@example.com", "url": "https://example.com/", "name": "b"}


def test_a_handler_without_a_possible_sample_is_skipped() -> None:
    app = App()

    @app.job()
    async def choosy(number: Annotated[int, msgspec.Meta(gt=1000)]) -> None: ...

    assert sample(list(app.handlers.values())) == ("choosy", '{"...": "..."}')

    @app.job()
    async def easy() -> None: ...

    assert sample(list(app.handlers.values())) == ("easy", "{}")
