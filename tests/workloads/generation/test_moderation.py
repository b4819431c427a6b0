"""Moderation of images: the block list and its file, metadata, plug-ins."""

import hashlib
import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from PIL import Image, ImageOps, PngImagePlugin

from holdfast.errors import Invalid
from holdfast.workloads.generation import moderation
from holdfast.workloads.generation.blocked_images import BlockedImages
from holdfast.workloads.generation.faults import ProviderError
from holdfast.workloads.generation.moderation import (
    ALLOWED,
    ImageVerdict,
    ModeratedImage,
    Moderator,
    load_moderator,
)
from holdfast.workloads.generation.picture import dhash
from holdfast.workloads.generation.settings import Settings
from tests.workloads.generation.test_picture import saved, scenery

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}


class Time:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def refuses(text: str) -> str | None:
    return "violence" if "gore" in text else None


def moderated(data: bytes, kind: str = "PNG") -> ModeratedImage:
    return ModeratedImage(
        data=data,
        content_type=KINDS[kind],
        width=96,
        height=64,
        sha256=hashlib.sha256(data).hexdigest(),
        prompt="a cat",
    )


def rules(path: Path | str = "", time: Time | None = None) -> Moderator:
    settings = Settings()
    settings.blocked_images_file = str(path)  # no check of the settings
    return load_moderator(settings, refuses=refuses, monotonic=time or Time())


# --- Block list


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blocked"


async def test_an_ordinary_image_is_allowed() -> None:
    for kind in KINDS:
        assert await rules().moderate(moderated(saved(scenery(), kind), kind)) == ALLOWED


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_digest_blocks_one_file(path: Path) -> None:
    blocked, other = saved(scenery()), saved(scenery(seed=1))
    write(path, f"# reported\n\n{hashlib.sha256(blocked).hexdigest().upper()}  # by a user\n")
    assert await rules(path).moderate(moderated(blocked)) == ImageVerdict(False, "blocked_image")
    assert await rules(path).moderate(moderated(other)) == ALLOWED


async def test_a_perceptual_hash_blocks_copies_in_other_sizes_and_formats(path: Path) -> None:
    write(path, f"{'0' * 16}\n{dhash(scenery(400, 300))}\n")
    for kind in KINDS:
        copy = saved(scenery(400, 300).resize((300, 225)), kind)
        assert (await rules(path).moderate(moderated(copy, kind))).category == "blocked_image"
    assert await rules(path).moderate(moderated(saved(ImageOps.mirror(scenery(400, 300))))) == ALLOWED


@pytest.mark.parametrize(("bits", "matches"), [(0, True), (6, True), (7, False)])
def test_a_hash_matches_if_at_most_six_bits_differ(path: Path, bits: int, matches: bool) -> None:
    path.write_text(16 * "f")
    assert BlockedImages(str(path), Time()).matches(64 * "0", f"{2**64 - 2**bits:016x}") is matches


@pytest.mark.parametrize("line", ["0" * 15, "0" * 63, "g" * 16, "0" * 16 + " " + "0" * 16])
def test_an_invalid_line_is_an_error_at_the_start(path: Path, line: str) -> None:
    path.write_text(f"# a comment\n{line}\n")
    with pytest.raises(Invalid, match=r"blocked:2: neither a SHA-256 digest"):
        rules(path)


def test_a_file_that_cannot_be_read_is_an_error_at_the_start(path: Path) -> None:
    with pytest.raises(Invalid, match=r"blocked cannot be read: .*No such file"):
        rules(path)
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(Invalid, match="blocked:1: this is not UTF-8"):
        rules(path)


def test_a_change_of_the_file_is_seen_after_a_second(path: Path) -> None:
    path.write_text("# none\n")
    time = Time()
    blocked = BlockedImages(str(path), time)
    path.write_text("f" * 64)
    time.now = 0.9
    assert not blocked.matches("f" * 64, "0" * 16)
    time.now = 1.0
    assert blocked.matches("f" * 64, "0" * 16)


def test_the_file_is_looked_at_once_a_second(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("")
    time, seen = Time(), list[float]()
    blocked = BlockedImages(str(path), time)
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda self, **options: seen.append(time.now) or real(self, **options))
    for time.now in (0.0, 0.5, 1.0, 1.5, 1.9, 2.0, 9.0, 9.5):
        blocked.matches("f" * 64, "0" * 16)
    assert seen == [1.0, 2.0, 9.0]


@pytest.mark.parametrize("damage", ["nonsense", None])
def test_the_list_stays_in_force_when_the_file_becomes_invalid(
    path: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("f" * 64)
    time = Time()
    blocked = BlockedImages(str(path), time)
    path.write_text(damage) if damage else path.unlink()
    for time.now in (1.0, 2.0, 3.0):
        assert blocked.matches("f" * 64, "0" * 16)
    [message] = caplog.messages
    assert message.endswith("the previous list stays in force")
    path.write_text("e" * 64)
    os.utime(path, ns=(1, 1))
    time.now = 4.0
    assert blocked.matches("e" * 64, "0" * 16)
    assert not blocked.matches("f" * 64, "0" * 16)


# --- Text in metadata


def with_text(**texts: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Title", texts.get("tEXt", ""))
    info.add_text("Comment", texts.get("zTXt", ""), zip=True)
    info.add_itxt("Description", texts.get("iTXt", ""), zip="iTXt" in texts)
    return saved(scenery(), pnginfo=info)


def with_exif(tag: int, value: object, kind: str) -> bytes:
    exif = Image.Exif()
    if tag == 0x9286:
        exif.get_ifd(0x8769)[tag] = value
    else:
        exif[tag] = value
    return saved(scenery(), kind, exif=exif.tobytes())


@pytest.mark.parametrize("name", ["tEXt", "zTXt", "iTXt"])
async def test_text_chunks_of_a_png_are_checked(name: str) -> None:
    assert (await rules().moderate(moderated(with_text(**{name: "much gore"})))).category == "violence"
    assert await rules().moderate(moderated(with_text(**{name: "a cat"}))) == ALLOWED


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tag", "value"),
    [
        (0x010E, "much gore"),
        (0x9286, b"ASCII\0\0\0much gore"),
        (0x9286, b"UNICODE\0" + "much gore".encode("utf-16-be")),
        (0x9286, b"UNICODE\0" + "much gore".encode("utf-16-le")),
        (0x9C9C, "much gore\0".encode("utf-16-le")),
    ],
)
async def test_exif_text_is_checked(kind: str, tag: int, value: object) -> None:
    assert (await rules().moderate(moderated(with_exif(tag, value, kind), kind))).category == "violence"


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
async def test_xmp_and_comments_are_checked(kind: str) -> None:
    xmp = b"<x:xmpmeta><dc:description>much gore</dc:description></x:xmpmeta>"
    assert (await rules().moderate(moderated(saved(scenery(), kind, xmp=xmp), kind))).category == "violence"
    commented = saved(scenery(), "JPEG", comment=b"much gore")
    assert (await rules().moderate(moderated(commented, "JPEG"))).category == "violence"


async def test_what_an_image_must_not_show_may_be_in_its_metadata() -> None:
    found = with_text(tEXt="a cat\nNegative prompt: gore, blood\nSteps: 20")
    assert await rules().moderate(moderated(found)) == ALLOWED


async def test_long_metadata_is_checked_up_to_a_limit() -> None:
    seen = list[str]()
    moderator = load_moderator(Settings(), refuses=seen.append, monotonic=Time())
    long = with_text(tEXt="a" * 900_000, zTXt="b" * 900_000, iTXt="c" * 900_000)
    assert await moderator.moderate(moderated(long)) == ALLOWED
    assert {len(text) for text in seen} == {16_384}


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
async def test_damaged_exif_is_no_text() -> None:
    data = saved(scenery(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    assert await rules().moderate(moderated(data, "JPEG")) == ALLOWED


# --- Images of one color


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("color", ["black", (200, 30, 90)])
async def test_an_image_of_one_color_is_allowed(kind: str, color: str) -> None:
    data = saved(Image.new("RGB", (96, 64), color), kind)
    assert await rules().moderate(moderated(data, kind)) == ALLOWED


# --- Failures and plug-ins


async def test_a_damaged_image_is_not_allowed() -> None:
    with pytest.raises(ProviderError):
        await rules().moderate(moderated(b"nothing"))


class Strict:
    async def moderate(self, image: ModeratedImage) -> ImageVerdict:
        return ImageVerdict(False, "strict")


def make(settings: Settings) -> Strict:
    return Strict()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("strict", f"{__name__}:make", moderation.GROUP)
    monkeypatch.setattr(moderation, "entry_points", lambda group: [entry] if group == moderation.GROUP else [])


async def test_a_plug_in_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    moderator = load_moderator(Settings(moderator="strict"), refuses=refuses, monotonic=Time())
    assert await moderator.moderate(moderated(b"")) == ImageVerdict(False, "strict")


def test_an_unknown_plug_in_is_an_error_that_lists_the_installed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(Invalid, match="there is no moderator 'lenient'; installed: rules, strict"):
        load_moderator(Settings(moderator="lenient"), refuses=refuses, monotonic=Time())
