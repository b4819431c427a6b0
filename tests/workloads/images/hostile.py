"""Hostile, damaged and unusual uploads, made when they are needed, and what must become of each.

Each is small on disk, but `more_than_50_MB`. The limits are those of the default settings.
"""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from PIL import Image

from tests.workloads.images import builders as b

UNSUPPORTED = (415, "unsupported_image")
TOO_LARGE = (413, "image_too_large")
TOO_MANY_PIXELS = (422, "image_too_many_pixels")
TOO_MANY_FRAMES = (422, "image_too_many_frames")
CORRUPT = (422, "corrupt_image")
COMPLETED = "completed"
FAILED = "corrupt_image"
TOO_MUCH_WORK = "image_too_many_pixels"  # which shows only in the file as a whole

SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(document.cookie)</script></svg>"""
XXE = b"""<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a SYSTEM "file:///etc/passwd">]><svg>&a;</svg>"""
HTML = b"<!DOCTYPE html><html><body><script>alert(document.domain)</script></body></html>"
PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /OpenAction << /S /JavaScript /JS (app.alert(1)) >> >>\nendobj\n"
KINDS = {"jpeg": "JPEG", "png": "PNG", "gif": "GIF", "webp": "WEBP", "avif": "AVIF", "tiff": "TIFF", "bmp": "BMP"}


class Hostile(NamedTuple):
    name: str
    make: Callable[[], bytes]
    at_upload: tuple[int, str] | None = None  # status and code of the rejection; None: it is accepted
    after: str | None = None  # of an accepted one: "completed", or the code that processing fails with


def noise(size: int, seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(size)


def photo(kind: str) -> bytes:
    """Does not compress: most of the file is image data."""
    image = Image.frombytes("RGB", (96, 64), noise(96 * 64 * 3))
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def cut(kind: str) -> bytes:
    data = photo(kind)
    return data[: len(data) // 2]


# --- More pixels, frames or bytes than are allowed


def png_bomb() -> bytes:
    """900 million pixels, all there: 2.7 GB as RGB."""
    return b.png(30_000, 30_000, b.chunk(b"IDAT", b.deflated_zeros(30_001 * 30_000)))


def png_text_bomb() -> bytes:
    """A tiny image, and 300 MB of text."""
    text = b.chunk(b"zTXt", b"Comment\0\0" + b.deflated_zeros(300_000_000))
    return b.png(16, 16, text, b.png_data(16, 16))


def png_profile_bomb() -> bytes:
    profile = b.chunk(b"iCCP", b"ICC\0\0" + b.deflated_zeros(300_000_000))
    return b.png(16, 16, profile, b.png_data(16, 16))


def webp_bomb() -> bytes:
    """The most pixels that the format holds."""
    data = b.saved("WEBP", lossless=True)
    return data[:21] + struct.pack("<I", 0x0FFF_FFFF & (16_382 << 14 | 16_382)) + data[25:]


def webp_lossy_bomb() -> bytes:
    data = b.saved("WEBP")
    return data[:26] + struct.pack("<HH", 0x3FFF, 0x3FFF) + data[30:]


def avif_bomb() -> bytes:
    data = b.saved("AVIF")
    at = data.index(b"ispe") + 8
    return data[:at] + struct.pack(">II", 60_000, 60_000) + data[at + 8 :]


def avif_sequence_bomb() -> bytes:
    return b.heif(b.track(100, 100, 2**31), brands=b"avis\0\0\0\0avifavis")


def tiff_bomb() -> bytes:
    return b.tiff(30_000, 30_000, b.deflated_zeros(900_000_000), compression=8)


def tiff_pages() -> bytes:
    """A chain of 5,000 pages that share one pixel."""
    tags = b.tiff_tags(1, 1, 8, 1)
    size = len(b.directory(tags))
    pages = (b.directory(tags, 16 + size * (n + 1)) for n in range(5000))
    return b.tiff_header(16) + bytes(8) + b"".join(pages)


def jpeg_second_size() -> bytes:
    """The second frame header is the one that decoders believe."""
    return b.jpeg_with(b.segment(0xC0, struct.pack(">BHHB", 8, 8, 8, 1) + b"\1\x11\0"), b.jpeg_of_size(60_000, 60_000))


def jpeg_scans(count: int, side: int = 4000) -> bytes:
    """Its last scan is repeated, at most 141 bytes which say that no pixel changes."""
    file = io.BytesIO()
    Image.new("L", (side, side), 128).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * (count - data.count(b"\xff\xda")) + data[-2:]


def jpeg_with_many_scans_in_a_comment() -> bytes:
    return b.jpeg_with(b.segment(0xFE, b"\xff\xda\0\2" * 1000))


def webp_frames(count: int, width: int, height: int) -> bytes:
    chunks = [b.webp_canvas(width, height, flags=0x02), b.webp_chunk(b"ANIM", bytes(6))]
    return b.riff(*chunks, *[b.webp_frame()] * count)


BOMBS = [
    Hostile("png_bomb_of_900_million_pixels", png_bomb, TOO_MANY_PIXELS),
    Hostile("png_of_2_to_the_62_pixels", lambda: b.png(2**31 - 1, 2**31 - 1), TOO_MANY_PIXELS),
    Hostile("png_with_one_row_more_than_allowed", lambda: b.png(10_000, 10_001), TOO_MANY_PIXELS),
    Hostile("png_with_text_bomb", png_text_bomb, after=FAILED),
    Hostile("png_with_profile_bomb", png_profile_bomb, after=FAILED),
    Hostile("jpeg_of_65535_squared", lambda: b.jpeg_of_size(65_535, 65_535), TOO_MANY_PIXELS),
    Hostile("jpeg_with_a_second_size", jpeg_second_size, TOO_MANY_PIXELS),
    Hostile("jpeg_of_300_scans", lambda: jpeg_scans(300), after=TOO_MUCH_WORK),
    Hostile("jpeg_of_600_small_scans", lambda: jpeg_scans(600, side=40), after=TOO_MUCH_WORK),
    Hostile("gif_with_huge_screen", lambda: b.gif(65_535, 65_535, b.gif_frame()), TOO_MANY_PIXELS),
    Hostile("gif_with_frame_beyond_its_screen", lambda: b.gif(1, 1, b.gif_frame(20_000, 20_000)), TOO_MANY_PIXELS),
    Hostile("gif_of_100000_frames", lambda: b.gif(1, 1, b.gif_frame() * 100_000), TOO_MANY_FRAMES),
    Hostile("gif_with_too_large_frames_together", lambda: b.gif(4000, 4000, b.gif_frame() * 100), TOO_MANY_PIXELS),
    Hostile("webp_of_16383_squared", webp_bomb, TOO_MANY_PIXELS),
    Hostile("webp_lossy_of_16383_squared", webp_lossy_bomb, TOO_MANY_PIXELS),
    Hostile("webp_with_huge_canvas", lambda: b.riff(b.webp_canvas(2**24, 255), b.webp_pixel()), TOO_MANY_PIXELS),
    Hostile("webp_of_2000_frames", lambda: webp_frames(2000, 1, 1), TOO_MANY_FRAMES),
    Hostile("webp_with_too_large_frames_together", lambda: webp_frames(100, 4000, 4000), TOO_MANY_PIXELS),
    Hostile("avif_with_huge_size", avif_bomb, TOO_MANY_PIXELS),
    Hostile("avif_sequence_of_2_to_the_31_frames", avif_sequence_bomb, TOO_MANY_FRAMES),
    Hostile("apng_of_2000_frames", lambda: b.png(1, 1, b.announce(2000), b.png_frames(2000)), TOO_MANY_FRAMES),
    Hostile("apng_that_hides_2000_frames", lambda: b.png(1, 1, b.announce(1), b.png_frames(2000)), TOO_MANY_FRAMES),
    Hostile("apng_that_announces_2_to_the_32", lambda: b.png(1, 1, b.announce(2**32 - 1)), TOO_MANY_FRAMES),
    Hostile("apng_with_too_large_frames_together", lambda: b.png(4000, 4000, b.announce(100)), TOO_MANY_PIXELS),
    Hostile("tiff_bomb_of_900_million_pixels", tiff_bomb, TOO_MANY_PIXELS),
    Hostile("tiff_of_5000_pages", tiff_pages, TOO_MANY_FRAMES),
    Hostile("bmp_of_2_to_the_61_pixels", lambda: b.bmp(2**31 - 1, -(2**30), b""), TOO_MANY_PIXELS),
    Hostile("more_than_50_MB", lambda: b.saved("JPEG") + bytes(52_428_800), TOO_LARGE),
]

# --- Damaged files


def tiff_strip_lies() -> bytes:
    """Two billion strips, in a file of one."""
    strips = (273, 279)  # where they are, and how large
    tags = b.tiff_tags(8, 8, 8, 64)
    lies = [(tag, kind, 2**31 - 1 if tag in strips else count, value) for tag, kind, count, value in tags]
    return b.tiff_header(72) + bytes(64) + b.directory(lies)


def tiff_outside() -> bytes:
    """Its data is where no file is that long."""
    return b.tiff_header(8) + b.directory(b.tiff_tags(8, 8, 2**32 - 100, 64))


def png_wrong_check(kind: bytes) -> bytes:
    data = bytearray(b.saved("PNG"))
    at = data.index(kind)
    end = at + 4 + struct.unpack_from(">I", data, at - 4)[0]
    data[end : end + 4] = b"\0\0\0\0"
    return bytes(data)


def jpeg_garbage() -> bytes:
    """Image data that is none, and ends early."""
    data = photo("JPEG")
    start = data.index(b"\xff\xda") + 14
    return data[:start] + noise(200).replace(b"\xff", b"\xfe")


def jpeg_no_height() -> bytes:
    return b.jpeg_of_size(37, 0)


def webp_garbage() -> bytes:
    data = b.saved("WEBP", (96, 64), lossless=True)
    return data[:25] + noise(len(data) - 25)


def avif_garbage() -> bytes:
    data = photo("AVIF")
    at = data.index(b"mdat") + 4
    return data[:at] + noise(len(data) - at)


def avif_nested() -> bytes:
    """100,000 boxes, each in the one before."""
    return b.heif(b.ENDLESS_META * 100_000)


def avif_sizes_lie() -> bytes:
    """A box of nearly 2**64 bytes around the size."""
    inner = b.box(b"ipco", b.item_size(8, 8))
    return b.heif(b.full_box(b"meta", struct.pack(">I4sQ", 1, b"iprp", 2**64 - 1) + inner))


def many_segments() -> bytes:
    return b.jpeg_with(b.segment(0xE0, b"") * 200_000)


def many_chunks() -> bytes:
    return b.png(8, 8, b.announce(2), b.chunk(b"tEXt", b"") * 200_000)


def png_huge_chunk() -> bytes:
    data = b.saved("PNG")
    return data[:33] + struct.pack(">I4s", 2**32 - 1, b"tEXt") + data[33:]


def png_dimensions_missing() -> bytes:
    return b.PNG_SIGNATURE + b.png_data(8, 8)


TRUNCATED = [Hostile(f"truncated_{name}", partial(cut, kind), after=FAILED) for name, kind in KINDS.items()]
DAMAGED = [
    *TRUNCATED,
    Hostile("jpeg_signature_alone", lambda: b"\xff\xd8\xff\xe0" + bytes(100), CORRUPT),
    Hostile("jpeg_without_height", jpeg_no_height, CORRUPT),
    Hostile("jpeg_without_width", lambda: b.jpeg_of_size(0, 37), CORRUPT),
    Hostile("jpeg_with_garbage_data", jpeg_garbage, after=FAILED),
    Hostile("jpeg_of_200000_segments", many_segments, CORRUPT),
    Hostile("png_without_width", lambda: b.png(0, 10), CORRUPT),
    Hostile("png_without_dimensions", png_dimensions_missing, CORRUPT),
    Hostile("png_without_data", lambda: b.png(10, 10), after=FAILED),
    Hostile("png_with_garbage_data", lambda: b.png(64, 64, b.chunk(b"IDAT", noise(500))), after=FAILED),
    Hostile("png_with_wrong_header_check", lambda: png_wrong_check(b"IHDR"), after=FAILED),
    Hostile("png_with_chunk_of_4_GB", png_huge_chunk, after=FAILED),
    Hostile("apng_of_200000_chunks", many_chunks, CORRUPT),
    Hostile("gif_without_frames", lambda: b.gif(10, 10), after=FAILED),
    Hostile("gif_without_screen_and_frames", lambda: b.gif(0, 0), CORRUPT),
    Hostile(
        "gif_with_garbage_data", lambda: b.gif(64, 64, b.gif_frame(64, 64, b"\x0d\xff" + noise(255))), after=FAILED
    ),
    Hostile("webp_with_garbage_data", webp_garbage, after=FAILED),
    Hostile("webp_without_image", lambda: b.riff(b.webp_canvas(8, 8)), after=FAILED),
    Hostile("avif_with_garbage_data", avif_garbage, after=FAILED),
    Hostile("avif_without_image", lambda: b.heif(b.item_meta(b.item_size(8, 8), items={1: [1]})), after=FAILED),
    Hostile("avif_with_100000_nested_boxes", avif_nested, CORRUPT),
    Hostile("avif_with_box_of_2_to_the_64_bytes", avif_sizes_lie, after=FAILED),
    Hostile("tiff_with_2_billion_strips", tiff_strip_lies, after=FAILED),
    Hostile("tiff_with_data_outside", tiff_outside, after=FAILED),
    Hostile("tiff_without_directory", lambda: b.tiff_header(0) + bytes(100), CORRUPT),
    Hostile("bmp_without_width", lambda: b.bmp(0, 10, b""), CORRUPT),
]

# --- Files of two types


def png_with_html() -> bytes:
    html = b.chunk(b"tEXt", b"Comment\0" + HTML)
    return b.png(8, 8, html, b.png_data(8, 8)) + HTML


def gif_javascript() -> bytes:
    """A valid script too: its screen is `/*` pixels wide."""
    width = int.from_bytes(b"/*", "little")
    return b.gif(width, 16, b.gif_frame()) + b"*/=1;alert(document.domain)"


def zip_archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../evil.sh", "rm -rf /")
    return file.getvalue()


POLYGLOTS = [
    Hostile("gif_that_is_a_script", gif_javascript, after=COMPLETED),
    Hostile("gif_signature_and_html", lambda: b"GIF89a" + HTML, TOO_MANY_PIXELS),
    Hostile("gif_header_and_html", lambda: b.gif(16, 16)[:-1] + HTML, after=FAILED),
    Hostile("png_with_html", png_with_html, after=COMPLETED),
    Hostile("jpeg_and_zip", lambda: b.saved("JPEG") + zip_archive(), after=COMPLETED),
    Hostile("jpeg_with_php_comment", lambda: b.jpeg_with(b.segment(0xFE, b"<?php phpinfo(); ?>")), after=COMPLETED),
    Hostile("pdf_and_jpeg", lambda: PDF + b.saved("JPEG"), UNSUPPORTED),
    Hostile("bmp_letters_and_html", lambda: b"BM<!--" + HTML, UNSUPPORTED),
]

# --- Files of other types


def icon() -> bytes:
    return b.saved("ICO", (16, 16))


def video() -> bytes:
    return b.box(b"ftyp", b"isom\0\0\2\0isomiso2mp41") + b.track(640, 480, 100) + b.box(b"mdat", noise(500))


def heic() -> bytes:
    return b.heif(b.item_meta(b.item_size(8, 8), items={1: [1]}), brands=b"heic\0\0\0\0mif1heic")


def heif_of_hevc() -> bytes:
    return b.heif(b.item_meta(b.item_size(8, 8), items={1: [1]}), brands=b"mif1\0\0\0\0mif1heic")


def quicktime() -> bytes:
    return b.box(b"ftyp", b"qt  \0\0\2\0qt  ") + b.box(b"mdat", noise(100))


OTHER_TYPES = [
    Hostile("nothing", lambda: b"", UNSUPPORTED),
    Hostile("one_byte", lambda: b"\xff", UNSUPPORTED),
    Hostile("zeros", lambda: bytes(1000), UNSUPPORTED),
    Hostile("noise", lambda: noise(1000), UNSUPPORTED),
    Hostile("text", lambda: b"BM, GIF, II and MM are the beginnings of this text.", UNSUPPORTED),
    Hostile("html", lambda: HTML, UNSUPPORTED),
    Hostile("svg_with_script", lambda: SVG, UNSUPPORTED),
    Hostile("svg_with_entity", lambda: XXE, UNSUPPORTED),
    Hostile("svg_compressed", lambda: gzip.compress(SVG, mtime=0), UNSUPPORTED),
    Hostile("pdf", lambda: PDF, UNSUPPORTED),
    Hostile("postscript", lambda: b.saved("EPS"), UNSUPPORTED),
    Hostile("zip", zip_archive, UNSUPPORTED),
    Hostile("program", lambda: b"\x7fELF\2\1\1" + bytes(100), UNSUPPORTED),
    Hostile("icon", icon, UNSUPPORTED),
    Hostile("mp4", video, UNSUPPORTED),
    Hostile("quicktime", quicktime, UNSUPPORTED),
    Hostile("heic", heic, UNSUPPORTED),
    Hostile("heif_of_hevc", heif_of_hevc, UNSUPPORTED),
    Hostile("jpeg_2000", lambda: b.saved("JPEG2000"), UNSUPPORTED),
    Hostile("big_tiff", lambda: b"II+\0\x08\0\0\0" + struct.pack("<Q", 16) + bytes(100), UNSUPPORTED),
    Hostile("riff_that_is_sound", lambda: b"RIFF\x24\0\0\0WAVEfmt " + bytes(100), UNSUPPORTED),
]

# --- Unusual, and fine


def exif_loop() -> bytes:
    """An IFD that is followed by itself."""
    return b"Exif\0\0" + b.tiff_header(8) + b.directory([(0x0112, 3, 1, 6)], following=8)


def exif_pointer_loop() -> bytes:
    """Its sub-IFD is itself."""
    return b"Exif\0\0" + b.tiff_header(8) + b.directory([(0x8769, 4, 1, 8), (0x8825, 4, 1, 8)])


def jpeg_exif(exif: bytes) -> bytes:
    return b.jpeg_with(b.segment(0xE1, exif))


def tiff_loop() -> bytes:
    """Its page is followed by itself."""
    return b.tiff_header(8) + b.directory(b.tiff_tags(1, 1, 4, 1), following=8)


TINY = [Hostile(f"one_pixel_{name}", partial(b.saved, kind, (1, 1)), after=COMPLETED) for name, kind in KINDS.items()]
UNUSUAL = [
    *TINY,
    Hostile("png_of_1_by_65535", lambda: b.png(1, 65_535, b.png_data(1, 65_535)), after=COMPLETED),
    Hostile("png_of_65535_by_1", lambda: b.png(65_535, 1, b.png_data(65_535, 1)), after=COMPLETED),
    Hostile("png_with_wrong_data_check", lambda: png_wrong_check(b"IDAT"), after=COMPLETED),
    Hostile("png_of_16_bits", lambda: b.saved("PNG", mode="I;16"), after=COMPLETED),
    Hostile("png_with_palette", lambda: b.saved("PNG", mode="P"), after=COMPLETED),
    Hostile("png_with_garbage_profile", lambda: b.saved("PNG", icc_profile=noise(500)), after=COMPLETED),
    Hostile("apng_that_shows_2_of_5_frames", lambda: b.png(1, 1, b.announce(2), b.png_frames(5)), after=COMPLETED),
    Hostile("jpeg_of_cmyk", lambda: b.saved("JPEG", mode="CMYK"), after=COMPLETED),
    Hostile("jpeg_with_garbage_profile", lambda: b.saved("JPEG", icc_profile=noise(500)), after=COMPLETED),
    Hostile("jpeg_with_garbage_exif", lambda: jpeg_exif(b"Exif\0\0" + noise(500)), after=COMPLETED),
    Hostile("jpeg_with_orientation_99", lambda: jpeg_exif(b"Exif\0\0" + b.exif(99)), after=COMPLETED),
    Hostile("jpeg_with_circular_exif", lambda: jpeg_exif(exif_loop()), after=COMPLETED),
    Hostile("jpeg_with_exif_in_itself", lambda: jpeg_exif(exif_pointer_loop()), after=COMPLETED),
    Hostile("jpeg_of_40_scans", lambda: jpeg_scans(40, side=400), after=COMPLETED),
    Hostile("jpeg_with_many_scans_in_a_comment", jpeg_with_many_scans_in_a_comment, after=COMPLETED),
    Hostile("tiff_with_circular_pages", tiff_loop, after=COMPLETED),
    Hostile("bmp_from_the_top_down", lambda: b.bmp(4, -4, bytes(48)), after=COMPLETED),
    Hostile("gif_without_screen", lambda: b.gif(0, 0, b.gif_frame()), after=COMPLETED),
]

HOSTILE = [*BOMBS, *DAMAGED, *POLYGLOTS, *OTHER_TYPES, *UNUSUAL]
