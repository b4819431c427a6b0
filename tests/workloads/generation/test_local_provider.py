"""The provider that draws by itself: the same bytes for the same order, another picture for any other."""

import asyncio
import hashlib
import io
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageStat

from holdfast.workloads.generation.drawing.chance import Chance
from holdfast.workloads.generation.drawing.words import Words
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.picture import checked
from holdfast.workloads.generation.providers.base import ImageOrder, Made, Provider
from holdfast.workloads.generation.providers.local import LocalProvider

THINGS = ["mountains", "the sea", "a forest", "a city", "desert", "galaxy", "portrait", "cat", "flowers", "dreams"]
MORE = ["geometric shapes", "ribbons", "", "winter mountains at night", "snowy forest", "!?", "日本の山", "a\0b\ud800"]
STYLES = ["", "watercolor", "pixel art", "line art", "neon", "pencil", "low-poly", "noir", "vintage", "some other"]


def order(prompt: str = "a quiet sea", width: int = 192, height: int = 128, **other: object) -> ImageOrder:
    wanted = {"negative_prompt": None, "seed": 1, "style": None, "key": "k"} | other
    return ImageOrder(prompt=prompt, width=width, height=height, **wanted)  # type: ignore[arg-type]


async def drawn(wanted: ImageOrder) -> bytes:
    made = await LocalProvider().create(wanted)
    assert isinstance(made, Made)
    assert made.cost_micros == 0
    return made.data


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def difference(one: bytes, other: bytes) -> float:
    """The mean one of all values, of 255."""
    return sum(ImageStat.Stat(ImageChops.difference(opened(one), opened(other))).mean) / 3


@pytest.mark.parametrize("size", [(64, 64), (65, 97), (1024, 768), (64, 2048), (2048, 64), (2048, 2048)])
@pytest.mark.parametrize("style", [None, "watercolor", "pixel"])
async def test_the_image_has_the_size_of_the_order(size: tuple[int, int], style: str | None) -> None:
    data = await drawn(order(width=size[0], height=size[1], style=style))
    found = checked(data, width=size[0], height=size[1])
    assert (found.content_type, found.width, found.height) == ("image/png", *size)
    assert found.bytes < 8_000_000


@pytest.mark.parametrize("prompt", THINGS + MORE)
async def test_every_prompt_is_drawn_in_every_style(prompt: str) -> None:
    pictures = [await drawn(order(prompt, 96, 64, style=style)) for style in STYLES]
    assert len(set(pictures)) == len(STYLES)
    assert all(max(high - low for low, high in opened(data).convert("RGB").getextrema()) > 30 for data in pictures)


async def test_the_same_order_gives_the_same_bytes_whatever_its_key_is() -> None:
    one, two = await asyncio.gather(drawn(order()), drawn(order(key="other", webhook_url="https://a.example/")))
    assert one == two


@pytest.mark.parametrize(
    "other",
    [{"seed": 2}, {"prompt": "a quiet lake"}, {"style": "neon"}, {"style": "unheard of"}, {"negative_prompt": "birds"}],
    ids=str,
)
async def test_another_order_gives_a_visibly_different_picture(other: dict[str, object]) -> None:
    assert difference(await drawn(order()), await drawn(order(**other))) > 4  # type: ignore[arg-type]


async def test_seeds_give_many_pictures() -> None:
    assert len({await drawn(order(width=64, height=64, seed=seed)) for seed in (0, 1, 2, 3, 2**31, 2**63 - 1)}) == 6


IN_A_PROCESS = """
import asyncio, hashlib
from holdfast.workloads.generation.providers.base import ImageOrder
from holdfast.workloads.generation.providers.local import LocalProvider
for prompt, style in [("city at night", "watercolor"), ("dreams", None), ("galaxy", "neon")]:
    order = ImageOrder(prompt=prompt, negative_prompt="rain", width=160, height=96, seed=5, style=style, key="")
    print(hashlib.sha256(asyncio.run(LocalProvider().create(order)).data).hexdigest())
"""


def test_all_processes_draw_the_same_bytes() -> None:
    def digests(hash_seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert digests("1") == digests("2")
    wanted = order("city at night", 160, 96, negative_prompt="rain", seed=5, style="watercolor")
    assert hashlib.sha256(asyncio.run(drawn(wanted))).hexdigest() == digests("3")[0]


async def test_the_file_says_what_made_it_and_not_from_which_prompt() -> None:
    data = await drawn(order("a secret", style="secret"))
    image = opened(data)
    image.load()
    assert image.info == {"Software": "holdfast"}
    assert b"secret" not in data


async def test_it_has_no_tasks() -> None:
    provider: Provider = LocalProvider()
    assert provider.name == "local"
    with pytest.raises(ProviderError) as caught:
        await provider.poll(order(), "task")
    assert (caught.value.code, caught.value.kind) == ("provider_refused", "permanent")
    await provider.cancel("task")
    await provider.close()


@pytest.mark.slow
async def test_drawing_takes_little_processor_time() -> None:
    """Several times what it takes: it finds an algorithm of another order, not a busy machine."""
    start = time.process_time()
    await drawn(order("the sea at sunset", 2048, 2048))
    assert time.process_time() - start < 4


async def test_the_event_loop_goes_on_while_a_picture_is_drawn() -> None:
    drawing = asyncio.create_task(drawn(order("city at night", 1024, 1024)))
    turns = 0
    while not drawing.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5


# --- Words


@pytest.mark.parametrize(
    ("prompt", "negative", "expected"),
    [
        ("Snowy MOUNTAINS at night", "", ("mountain", "night", "winter")),
        ("a portrait of a woman by the sea", "", ("portrait", None, None)),
        ("the sea, not mountains", "sea", ("mountain", None, None)),
        ("Christmas in the city", "", ("city", None, "winter")),
        ("glass", "", (None, None, None)),
        ("", "", (None, None, None)),
    ],
)
def test_words_of_the_prompt(prompt: str, negative: str, expected: tuple[str | None, ...]) -> None:
    words = Words(prompt, negative)
    assert (words.thing, words.time, words.season) == expected


# --- Chance


def test_numbers_depend_on_the_key_alone() -> None:
    assert [Chance("a", 1).fraction() for _ in range(3)] == [Chance("a", 1).fraction()] * 3
    assert Chance("a", 1).bytes(8) != Chance("a", "1").bytes(8)
    one, two = Chance("a"), Chance("a")
    one.fraction()
    assert one.of("b").bytes(8) == two.of("b").bytes(8)


@given(st.text(), st.integers(-5, 5), st.integers(0, 9))
@settings(max_examples=30)
def test_numbers_are_within_their_range(key: str, low: int, more: int) -> None:
    chance = Chance(key)
    assert low <= chance.count(low, low + more) <= low + more
    assert low <= chance.between(low, low + more) <= low + more
    assert chance.pick("abc") in "abc"
