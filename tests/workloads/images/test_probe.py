"""The prober: type, size and frames of an upload from the bytes that stream past, whatever they are."""

from __future__ import annotations

import io
import re
import struct
import sys
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from functools import cache
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, ImageSequence

from holdfast.workloads.images.faults import (
    CORRUPT,
    TOO_MANY_FRAMES,
    TOO_MANY_PIXELS,
    UNSUPPORTED,
    ImageFault,
)
from holdfast.workloads.images.limits import ImageLimits
from holdfast.workloads.images.probe import ImageInfo, Prober, prober
from holdfast.workloads.images.probe.stream_buffer import StreamBuffer
from tests.workloads.images import builders as b
from tests.workloads.images.hostile import COMPLETED, FAILED, HOSTILE, KINDS, Hostile

LIMITS = ImageLimits(max_pixels=100_000_000, max_frames=1000, max_animation_pixels=1_000_000_000)
STATUS = {UNSUPPORTED: 415, CORRUPT: 422, TOO_MANY_PIXELS: 422, TOO_MANY_FRAMES: 422}
CHUNK = 65_536
MB = 1_000_000
MEMORY_MAX = MB // 2
PROBE = "holdfast.workloads.images.probe"


def probe(data: bytes, limits: ImageLimits = LIMITS, chunk: int = CHUNK) -> ImageInfo:
    return probe_chunks((data[at : at + chunk] for at in range(0, len(data), chunk)), limits)


def probe_chunks(chunks: Iterator[bytes], limits: ImageLimits = LIMITS) -> ImageInfo:
    prober = Prober(limits)
    for chunk in chunks:
        prober.feed(chunk)
    return prober.finish()


def outcome(chunks: Iterator[bytes]) -> ImageInfo | str:
    """What was found, or the code of the fault."""
    try:
        return probe_chunks(chunks)
    except ImageFault as fault:
        return fault.code


def fault_of(data: bytes, limits: ImageLimits = LIMITS) -> str:
    with pytest.raises(ImageFault) as raised:
        probe(data, limits)
    return raised.value.code


def size_of(data: bytes) -> tuple[int, int]:
    found = probe(data)
    return found.width, found.height


def frames_of(data: bytes) -> int:
    return probe(data).frames


@cache
def samples() -> list[bytes]:
    """Small files of each kind, whole and hostile."""
    whole = [b.saved(kind) for kind in KINDS.values()]
    turned = [b.oriented(kind, 6) for kind in ("JPEG", "PNG", "WEBP", "AVIF", "TIFF")]
    moving = [b.animated(kind) for kind in ("PNG", "GIF", "WEBP", "AVIF")]
    hostile = [data for case in HOSTILE if case.name != "more_than_50_MB" and len(data := case.make()) < 10_000]
    return [*whole, *turned, *moving, *hostile]


# --- What Pillow says


@pytest.mark.parametrize("size", [(1, 1), (37, 21), (300, 5), (16, 1000)])
@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_type_and_size_are_those_that_pillow_wrote(name: str, kind: str, size: tuple[int, int]) -> None:
    assert probe(b.saved(kind, size)) == ImageInfo(name, f"image/{name}", *size, 1)


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {"icc_profile": bytes(200_000), "comment": b"\xff\xc0 in a comment"}),
        ("PNG", "I;16", {}),
        ("PNG", "P", {"icc_profile": bytes(200_000)}),
        ("PNG", "1", {}),
        ("GIF", "P", {"comment": b"c" * 1000}),
        ("GIF", "L", {"interlace": True}),
        ("WEBP", "RGBA", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("WEBP", "RGBA", {"icc_profile": bytes(200_000)}),
        ("AVIF", "RGBA", {}),
        ("AVIF", "L", {"icc_profile": bytes(200_000)}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
        ("TIFF", "CMYK", {"compression": "jpeg"}),
        ("TIFF", "F", {}),
        ("BMP", "1", {}),
        ("BMP", "RGBA", {}),
    ],
)
def test_modes_and_options_do_not_matter(kind: str, mode: str, options: dict[str, object]) -> None:
    assert size_of(b.saved(kind, (137, 21), mode, **options)) == (137, 21)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
def test_the_size_is_that_after_the_orientation(kind: str, orientation: int) -> None:
    data = b.oriented(kind, orientation)
    with Image.open(io.BytesIO(data)) as image:
        seen = ImageOps.exif_transpose(image).size
    assert size_of(data) == seen == ((21, 37) if orientation in range(5, 9) else (37, 21))


@pytest.mark.parametrize("kind", ["PNG", "GIF", "WEBP", "AVIF"])
@pytest.mark.parametrize("frames", [2, 5, 60])
def test_frames_are_counted(kind: str, frames: int) -> None:
    data = b.animated(kind, frames)
    with Image.open(io.BytesIO(data)) as image:
        assert frames_of(data) == getattr(image, "n_frames", 1) == frames


def test_a_picture_for_programs_that_play_no_animation_is_not_a_frame() -> None:
    assert frames_of(b.animated("PNG", 5, default_image=True)) == 4


def test_pages_of_a_tiff_are_not_frames() -> None:
    assert frames_of(b.animated("TIFF", 5)) == 1


# --- Formats


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCF])
def test_jpeg_has_many_frame_headers(marker: int) -> None:
    header = b.segment(marker, struct.pack(">BHHB", 8, 21, 37, 1) + b"\1\x11\0")
    assert size_of(b"\xff\xd8" + b.segment(0xC4, bytes(30)) + header + b"\xff\xda") == (37, 21)


def test_jpeg_bytes_between_segments_are_passed_over() -> None:
    junk = b"\0\1\xff\0\xff\xff\xff\xff\x01\xff\xd0 and text"
    assert size_of(b"\xff\xd8\xff" + b.jpeg_with(junk)[2:]) == (37, 21)


def test_jpeg_size_of_the_thumbnail_does_not_count() -> None:
    exif = b"Exif\0\0" + b.exif(1) + b.saved("JPEG", (8, 8))
    assert size_of(b.jpeg_with(b.segment(0xE1, exif))) == (37, 21)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
def test_exif_has_two_byte_orders_and_types(order: str, kind: int) -> None:
    assert size_of(b.jpeg_with(b.segment(0xE1, b"Exif\0\0" + b.exif(6, order, kind)))) == (21, 37)


def test_only_the_first_exif_segment_counts() -> None:
    xmp = b.segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
    both = b.segment(0xE1, b"Exif\0\0" + b.exif(6)) + b.segment(0xE1, b"Exif\0\0" + b.exif(1))
    assert size_of(b.jpeg_with(xmp + both)) == (21, 37)


@pytest.mark.parametrize("cut", range(30))
def test_truncated_exif_has_no_orientation(cut: int) -> None:
    whole = b.exif(6)[:-4]
    assert size_of(b.jpeg_with(b.segment(0xE1, b"Exif\0\0" + whole[:cut]))) == (21, 37)[:: 1 if cut >= 22 else -1]


def test_an_exif_directory_outside_the_data_is_ignored() -> None:
    exif = b"II*\0" + struct.pack("<I", 2**32 - 1) + bytes(100)
    assert size_of(b.jpeg_with(b.segment(0xE1, b"Exif\0\0" + exif))) == (37, 21)


def test_png_exif_after_the_image_data_is_not_waited_for() -> None:
    prober = Prober(LIMITS)
    prober.feed(b.png(37, 21, b.png_data(37, 21)[:12]))
    assert prober.finish() == ImageInfo("png", "image/png", 37, 21, 1)


def test_png_frames_count_even_if_fewer_are_announced() -> None:
    assert frames_of(b.png(1, 1, b.announce(2), b.png_frames(7))) == 7
    assert frames_of(b.png(1, 1, b.announce(7), b.png_frames(2))) == 7
    assert frames_of(b.png(1, 1, b.announce(0), b.png_frames(7))) == 1


def test_gif_frames_enlarge_the_screen() -> None:
    assert size_of(b.gif(10, 10, b.gif_frame(5, 30), b.gif_frame(40, 5))) == (40, 30)


def test_gif_extensions_and_junk_between_blocks_are_passed_over() -> None:
    comment = b"!\xfe" + (b"\xff" + b",;!" * 85) * 3 + b"\0"
    assert frames_of(b.gif(10, 10, comment, b.gif_frame(), b"\0\0 junk ", b.gif_frame(), comment)) == 2


def test_gif_ends_at_its_trailer() -> None:
    assert frames_of(b.gif(10, 10, b.gif_frame(), b";", b.gif_frame())) == 1


def test_webp_ends_where_its_header_says() -> None:
    frames = [b.webp_canvas(8, 8, flags=2), b.webp_frame(), b.webp_frame()]
    assert frames_of(b.riff(*frames)) == frames_of(b.riff(*frames) + b.webp_frame()) == 2


def test_webp_frames_enlarge_the_canvas() -> None:
    assert size_of(b.riff(b.webp_canvas(8, 8, flags=2), b.webp_frame(6, 5, left=10, top=2))) == (16, 8)


def test_webp_exif_counts_only_if_it_is_announced() -> None:
    exif = b.webp_chunk(b"EXIF", b.exif(6))
    assert size_of(b.riff(b.webp_canvas(8, 4, flags=8), b.webp_pixel(), exif)) == (4, 8)
    assert size_of(b.riff(b.webp_canvas(8, 4), b.webp_pixel(), exif)) == (8, 4)


def test_avif_size_is_that_of_the_primary_item() -> None:
    """Not that of its tiles, which may reach beyond it."""
    sizes = b.item_size(512, 512), b.item_size(600, 300)
    assert size_of(b.heif(b.item_meta(*sizes, primary=2, items={1: [1], 2: [2]}))) == (600, 300)


def test_avif_size_is_the_largest_if_the_primary_item_is_unknown() -> None:
    assert size_of(b.heif(b.item_meta(b.item_size(10, 10), b.item_size(60, 30), b.item_size(5, 5)))) == (60, 30)


@pytest.mark.parametrize(("angle", "size"), [(0, (60, 30)), (1, (30, 60)), (2, (60, 30)), (3, (30, 60))])
def test_avif_rotation_counts_if_it_is_of_the_primary_item(angle: int, size: tuple[int, int]) -> None:
    properties = b.item_size(60, 30), b.box(b"irot", bytes([angle]))
    assert size_of(b.heif(b.item_meta(*properties, items={1: [0x81, 0x82]}))) == size
    assert size_of(b.heif(b.item_meta(*properties, items={1: [1], 2: [2]}))) == (60, 30)


def test_avif_items_and_properties_may_have_wide_numbers() -> None:
    associations = struct.pack(">IIB3H", 1, 70_000, 3, 0x8001, 2, 7)
    properties = b.box(b"ipco", b.item_size(60, 30), b.box(b"irot", b"\1"))
    meta = b.full_box(
        b"meta",
        b.full_box(b"pitm", struct.pack(">I", 70_000), version=1),
        b.box(b"iprp", properties, b.full_box(b"ipma", associations, version=1, flags=1)),
    )
    assert size_of(b.heif(meta)) == (30, 60)


def test_avif_boxes_may_be_in_any_order_and_of_any_kind_of_size() -> None:
    data = struct.pack(">I4sQ", 1, b"mdat", 100_016) + bytes(100_000)
    meta = b.item_meta(b.item_size(60, 30), items={1: [1]})
    last = struct.pack(">I4s", 0, b"meta") + meta[8:]
    assert size_of(b.heif(data, last)) == size_of(b.heif(b.box(b"free"), meta, data)) == (60, 30)


def test_avif_boxes_are_read_only_where_they_belong() -> None:
    wrong = (
        b.box(b"ipco", b.item_size(60, 30)),
        b.box(b"moov", b.full_box(b"meta", b.box(b"iprp", b.item_size(60, 30)))),
    )
    assert fault_of(b.heif(*wrong)) == CORRUPT


def test_an_avif_box_does_not_reach_beyond_its_parent() -> None:
    sizes = b.box(b"ipco", b.item_size(60, 30), struct.pack(">I4s", 5000, b"free"), bytes(3))
    meta = b.full_box(b"meta", b.box(b"iprp", sizes))
    assert probe(b.heif(meta, b.track(80, 40, 12))).frames == 12


@pytest.mark.parametrize("version", [0, 1])
def test_avif_sequences_have_tracks(version: int) -> None:
    sequence = b.heif(b.track(60, 30, 12, version), brands=b"avis\0\0\0\0avis")
    assert probe(sequence) == ImageInfo("avif", "image/avif", 60, 30, 12)


def test_heif_is_accepted_if_one_of_its_brands_is_avif() -> None:
    meta = b.item_meta(b.item_size(60, 30), items={1: [1]})
    assert size_of(b.heif(meta, brands=b"mif1\0\0\0\0mif1miafavif")) == (60, 30)
    assert fault_of(b.heif(meta, brands=b"mif1\0\0\0\0mif1miafheic")) == UNSUPPORTED


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [3, 4])
@pytest.mark.parametrize("gap", [0, 200_000])
def test_tiff_directories_may_be_anywhere_ahead(order: str, kind: int, gap: int) -> None:
    tags = [(256, kind, 1, 37), (257, kind, 1, 21), (274, 3, 1, 6), *[(tag, 4, 1, 7) for tag in range(300, 3000)]]
    assert size_of(b.tiff_header(8 + gap, order) + bytes(gap) + b.directory(tags, order=order)) == (21, 37)


def test_tiff_with_a_truncated_directory_has_a_size() -> None:
    assert size_of((b.tiff_header() + b.directory(b.tiff_tags(37, 21, 8, 777)))[:40]) == (37, 21)


def test_the_first_tag_of_a_tiff_counts() -> None:
    tags = [(256, 4, 1, 37), (256, 4, 1, 38), (257, 4, 1, 21), (257, 4, 1, 22), (274, 3, 1, 6), (274, 3, 1, 7)]
    assert size_of(b.tiff_header() + b.directory(tags)) == (21, 37)


def test_tiff_with_values_of_other_types_has_no_size() -> None:
    assert fault_of(b.tiff_header() + b.directory([(256, 2, 1, 37), (257, 4, 1, 21)])) == CORRUPT
    assert fault_of(b.tiff_header() + b.directory([(256, 4, 2, 37), (257, 4, 1, 21)])) == CORRUPT


@pytest.mark.parametrize("height", [21, -21])
def test_bmp_rows_may_begin_at_the_top(height: int) -> None:
    assert size_of(b.bmp(37, height, b"")) == (37, 21)


def test_bmp_of_os2_has_a_shorter_header() -> None:
    header = b"BM" + struct.pack("<IHHI", 26, 0, 0, 26) + struct.pack("<IHHHH", 12, 60_000, 600, 1, 24)
    assert size_of(header) == (60_000, 600)


# --- Limits


def test_limits_may_be_reached() -> None:
    limits = ImageLimits(max_pixels=200, max_frames=3, max_animation_pixels=600)
    frame = b.gif_frame()
    assert probe(b.gif(20, 10, frame * 3), limits).frames == 3
    assert fault_of(b.gif(21, 10, frame), limits) == TOO_MANY_PIXELS
    assert fault_of(b.gif(20, 10, frame * 4), limits) == TOO_MANY_FRAMES
    assert fault_of(b.gif(20, 10, frame * 3), limits._replace(max_animation_pixels=599)) == TOO_MANY_PIXELS
    assert probe(b.gif(20, 10, frame), limits._replace(max_animation_pixels=1)).frames == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b.jpeg_of_size(60_000, 60_000)[:400], TOO_MANY_PIXELS),
        (b.png(60_000, 60_000)[:24], TOO_MANY_PIXELS),
        (b.png(10, 10, b.announce(1001))[:45], TOO_MANY_FRAMES),
        (b.gif(60_000, 60_000)[:18], TOO_MANY_PIXELS),
        (b.gif(10, 10, b.gif_frame() * 1001)[:-6], TOO_MANY_FRAMES),
        (b.bmp(60_000, 60_000, b"")[:26], TOO_MANY_PIXELS),
        (b"<svg xmlns='http", None),
        (b"<svg xmlns='http:/", UNSUPPORTED),
    ],
)
def test_a_fault_is_raised_as_soon_as_the_bytes_tell(data: bytes, code: str | None) -> None:
    prober = Prober(LIMITS)
    if code is None:
        prober.feed(data)
        return
    with pytest.raises(ImageFault) as raised:
        prober.feed(data)
    assert raised.value.code == code


def test_a_fault_stays() -> None:
    prober = Prober(LIMITS)
    for call in (lambda: prober.feed(b.png(60_000, 60_000)), lambda: prober.feed(b"more"), prober.finish):
        with pytest.raises(ImageFault, match="60000 x 60000 pixels; at most 100000000"):
            call()


def test_the_end_may_be_asked_for_twice() -> None:
    prober = Prober(LIMITS)
    prober.feed(b.saved("PNG"))
    assert prober.finish() == prober.finish()


# --- Whatever arrives


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: case.name)
def test_hostile_files_are_rejected_at_upload_or_accepted(case: Hostile) -> None:
    data = case.make()
    if case.at_upload and case.at_upload[0] in STATUS.values():
        code = fault_of(data)
        assert (STATUS[code], code) == case.at_upload
    else:
        assert probe(data).frames >= 1


DECODED = [case for case in HOSTILE if case.after in (COMPLETED, FAILED)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", DECODED, ids=lambda case: case.name)
def test_accepted_files_are_decoded_or_not_as_listed(case: Hostile) -> None:
    assert decodes(case.make()) == (case.after == COMPLETED)


def decodes(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data), formats=list(KINDS.values())) as image:
            for frame in ImageSequence.Iterator(image):
                frame.load()
    except Exception:  # Pillow raises many types
        return False
    return True


def test_hostile_files_are_many_and_have_names_of_their_own() -> None:
    assert len({case.name for case in HOSTILE}) == len(HOSTILE) >= 40
    assert all((case.at_upload is None) == (case.after is not None) for case in HOSTILE)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_chunks_do_not_matter(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(samples()))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(file)), max_size=20)))
    pieces = [file[start:end] for start, end in zip([0, *cuts], [*cuts, len(file)], strict=True)]
    assert outcome(iter(pieces)) == outcome(iter([file]))


def test_single_bytes_do_not_matter() -> None:
    for file in samples():
        assert outcome(file[at : at + 1] for at in range(len(file))) == outcome(iter([file]))


@given(st.binary(max_size=300), st.sampled_from([b"", *(b.saved(kind)[:18] for kind in KINDS.values())]))
@settings(max_examples=500, deadline=None)
def test_random_bytes_raise_nothing_but_faults(data: bytes, start: bytes) -> None:
    found = outcome(iter([start + data]))
    assert isinstance(found, ImageInfo) or found in STATUS


@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_mutated_files_raise_nothing_but_faults(data: st.DataObject) -> None:
    file = bytearray(data.draw(st.sampled_from(samples())))
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(file)))
        end = data.draw(st.integers(at, min(at + 8, len(file))))
        file[at:end] = data.draw(st.binary(max_size=8))
    found = outcome(iter([bytes(file)]))
    assert isinstance(found, ImageInfo) or found in STATUS


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_truncated_file_is_accepted_as_soon_as_its_size_is_known(kind: str) -> None:
    whole = b.saved(kind)
    found = [outcome(iter([whole[:end]])) for end in range(len(whole) + 1)]
    known = found.index(probe(whole))
    assert set(found[:known]) == {UNSUPPORTED, CORRUPT}
    assert set(found[known:]) == {probe(whole)}


# --- Cost


def test_each_property_of_an_avif_item_counts_as_a_part() -> None:
    """A file of 100 kB that applies 255 properties for each entry of a few bytes."""
    entries = (struct.pack(">HB", 1, 255) + b"\1" * 255) * 200
    associated = b.full_box(b"ipma", struct.pack(">I", 200), entries)
    properties = b.box(b"iprp", b.box(b"ipco", b.item_size(8, 8)), associated, associated)
    data = b.heif(b.full_box(b"meta", b.full_box(b"pitm", b"\0\1"), properties))
    assert size_of(data) == (8, 8)
    assert fault_of(data + data[data.index(b"meta") - 4 :]) == CORRUPT


def endless(start: bytes, part: bytes, size: int) -> Callable[[], Iterator[bytes]]:
    """A file of that size, which begins so and repeats the part. Its chunks take no time to make."""
    block = part * max(1, CHUNK // len(part))

    def chunks() -> Iterator[bytes]:
        yield start
        for _ in range(size // len(block)):
            yield block

    return chunks


GIF_START = b.gif(10, 10, b.gif_frame(data=b"\x02"))[:-1]
LARGE = {
    "jpeg": (b.saved("JPEG"), b"photo"),
    "png": (b.png(10, 10)[:33], b.chunk(b"IDAT", bytes(8192))),
    "apng": (b.png(10, 10, b.announce(2))[:53], b.chunk(b"IDAT", bytes(8192))),
    "gif": (GIF_START, b"\xff" + bytes(255)),
    "webp": (b"RIFF\xff\xff\xff\x7fWEBP" + b.webp_canvas(9, 9), b.webp_chunk(b"ALPH", bytes(CHUNK))),
    "avif": (b.heif(b.item_meta(b.item_size(9, 9))), b.box(b"mdat", bytes(8192))),
    "tiff": (b.tiff_header(2**31), b"strip"),
    "bmp": (b.bmp(10, 10, b""), b"\0"),
}
SLOWEST = {
    "gif_of_1_byte_blocks": (GIF_START, b"\1\1"),
    "gif_of_junk": (GIF_START + b"\0", b"\0"),
    "gif_of_empty_extensions": (GIF_START + b"\0", b"!\xfe\0"),
    "jpeg_of_empty_segments": (b"\xff\xd8", b"\xff\xe0\0\2"),
    "jpeg_of_padding": (b"\xff\xd8", b"\xff"),
    "jpeg_of_escapes": (b"\xff\xd8\xff", b"\0\xff"),
    "jpeg_of_exif": (b"\xff\xd8", b.segment(0xE1, bytes(65_000))),
    "png_of_empty_chunks": (b.png(10, 10, b.announce(2))[:53], b.chunk(b"tEXt", b"")),
    "png_of_exif": (b.png(10, 10)[:33], b.chunk(b"eXIf", b.tiff_header() + b"\xff" * CHUNK)),
    "webp_of_empty_chunks": (b"RIFF\xff\xff\xff\x7fWEBP", b"ABCD\0\0\0\0"),
    "avif_of_empty_boxes": (b.heif(), b.box(b"free")),
    "avif_of_properties": (b.heif(b.ENDLESS_META, b.endless_box(b"iprp"), b.endless_box(b"ipco")), b.item_size(8, 8)),
    "avif_of_associations": (b.heif(b.ENDLESS_META), b.box(b"iprp", b.full_box(b"ipma", bytes(60_000)))),
    "avif_of_repeated_properties": (
        b.heif(b.ENDLESS_META, b.full_box(b"pitm", b"\0\1")),
        b.box(b"iprp", b.full_box(b"ipma", bytes(4), (b"\0\1\xff" + b"\1" * 255) * 200)),
    ),
    "avif_of_nested_boxes": (b.heif(), b.ENDLESS_META),
    "tiff_of_one_directory": (b.tiff_header() + b"\xff\xff", struct.pack("<HHII", 256, 4, 1, 9)),
}


class Work:
    """What a file costs: the lines that the prober executes, and the bytes that it copies, moves or searches."""

    def __init__(self) -> None:
        self.lines = self.bytes = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Work | None:
        """As a trace function."""
        if frame.f_globals["__name__"].startswith(PROBE):
            self.lines += event == "line"
            return self
        return None


def work_of(chunks: Iterator[bytes], monkeypatch: pytest.MonkeyPatch) -> Work:
    work, before = Work(), sys.gettrace()

    class Search:
        def __init__(self, pattern: re.Pattern[bytes]) -> None:
            self._pattern = pattern

        def search(self, data: bytes, start: int) -> re.Match[bytes] | None:
            found = self._pattern.search(data, start)
            work.bytes += (found.end() if found else len(data)) - start
            return found

    class Watched(StreamBuffer):
        def append(self, chunk: bytes, start: int) -> int:
            end = super().append(chunk, start)
            work.bytes += len(self.data)
            return end

        def take(self, size: int) -> Generator[None, None, bytes]:
            taken = yield from super().take(size)
            work.bytes += len(taken)
            return taken

        def find(self, pattern: re.Pattern[bytes]) -> Generator[None, None, int]:
            return super().find(Search(pattern))  # type: ignore[arg-type]

    monkeypatch.setattr(prober, "StreamBuffer", Watched)
    sys.settrace(work)
    try:
        outcome(chunks)
    finally:
        sys.settrace(before)
    return work


@pytest.mark.parametrize("name", LARGE)
def test_a_large_file_costs_little(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 50 * MB
    work = work_of(endless(*LARGE[name], size)(), monkeypatch)
    assert work.lines < size / 50  # measured: one in 120 bytes of a GIF, fewer in other files
    assert work.bytes < 1.1 * size


@pytest.mark.parametrize("name", SLOWEST)
def test_the_slowest_files_take_linear_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quarter, whole = [work_of(endless(*SLOWEST[name], size)(), monkeypatch) for size in (MB // 4, MB)]
    assert whole.lines < 5 * MB  # measured: up to 3.3 lines for each byte, 3 bytes for each byte
    assert whole.bytes < 5 * MB
    assert whole.lines < 5 * quarter.lines
    assert whole.bytes < 5 * quarter.bytes


@pytest.mark.parametrize("name", [*LARGE, *SLOWEST])
def test_memory_is_bounded(name: str) -> None:
    chunks = endless(*(LARGE | SLOWEST)[name], MB)()
    first = [next(chunks), next(chunks)]
    assert peak_memory(lambda: outcome(iter([*first, *chunks]))) < MEMORY_MAX


def test_memory_does_not_depend_on_the_chunk() -> None:
    chunk = GIF_START + (b"\xff" + bytes(255)) * 40_000
    assert peak_memory(lambda: outcome(iter([chunk]))) < MEMORY_MAX


def peak_memory(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
