"""Image files made of their parts, valid or not."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# One transparent or black pixel, compressed: the smallest data of a GIF frame.
GIF_PIXEL = b"\x02\x02\x44\x01\0"
AVIF_BRANDS = b"avif\0\0\0\0avifmif1miaf"
_MB = 1_000_000


def saved(kind: str, size: tuple[int, int] = (37, 21), mode: str = "RGB", **options: Any) -> bytes:
    """A gradient in a file that Pillow writes."""
    image = Image.linear_gradient("L").resize(size).convert(mode)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def animated(kind: str, frames: int = 5, size: tuple[int, int] = (37, 21), **options: Any) -> bytes:
    each = [Image.new("RGB", size, (50 * n % 256, 90, 200 - n % 200)) for n in range(frames)]
    file = io.BytesIO()
    each[0].save(file, kind, save_all=True, append_images=each[1:], duration=50, **options)
    return file.getvalue()


def oriented(kind: str, orientation: int, size: tuple[int, int] = (37, 21)) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(kind, size, exif=exif)


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    """EXIF data with one tag: a SHORT (3) or a LONG (4)."""
    value = struct.pack(order + ("H" if kind == 3 else "I"), orientation).ljust(4, b"\0")
    header = b"II*\0" if order == "<" else b"MM\0*"
    return header + struct.pack(f"{order}IHHHI", 8, 1, 0x0112, kind, 1) + value + bytes(4)


def deflated_zeros(count: int) -> bytes:
    """A zlib stream of zeros: as large as a decoder believes, small on disk and at once, because one part repeats."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    million = deflate.compress(bytes(_MB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    last = deflate.compress(bytes(count % _MB)) + deflate.flush()
    return b"\x78\xda" + million * (count // _MB) + last + struct.pack(">HH", count % 65_521, 1)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, bits: int = 8, color: int = 0) -> bytes:
    """Grey, unless told otherwise. The chunks are those between the header and the end."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return PNG_SIGNATURE + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


def png_data(width: int, height: int) -> bytes:
    """Black, for a grey image."""
    return chunk(b"IDAT", zlib.compress(bytes((width + 1) * height)))


def announce(frames: int) -> bytes:
    """What makes a PNG an animation."""
    return chunk(b"acTL", struct.pack(">II", frames, 0))


def png_frames(frames: int, width: int = 1, height: int = 1) -> bytes:
    """The frames of an animation; the first is the image itself."""
    data = zlib.compress(bytes((width + 1) * height))
    parts = []
    for n in range(frames):
        number = max(0, 2 * n - 1)
        parts.append(chunk(b"fcTL", struct.pack(">5I2H2B", number, width, height, 0, 0, 1, 10, 0, 0)))
        parts.append(chunk(b"fdAT", struct.pack(">I", number + 1) + data) if n else chunk(b"IDAT", data))
    return b"".join(parts)


def gif(width: int, height: int, *blocks: bytes) -> bytes:
    """Two colors. The blocks are those between the header and the end."""
    return (
        b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff" + b"".join(blocks) + b";"
    )


def gif_frame(width: int = 1, height: int = 1, data: bytes = GIF_PIXEL) -> bytes:
    return b"," + struct.pack("<4HB", 0, 0, width, height, 0) + data


def riff(*chunks: bytes) -> bytes:
    """A WebP file."""
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def webp_canvas(width: int, height: int, flags: int = 0) -> bytes:
    return webp_chunk(b"VP8X", struct.pack("<I", flags) + _uint24(width - 1) + _uint24(height - 1))


def webp_pixel() -> bytes:
    """The chunk of an image of one pixel."""
    return saved("WEBP", (1, 1), lossless=True)[12:]


def webp_frame(width: int = 1, height: int = 1, left: int = 0, top: int = 0) -> bytes:
    box = b"".join(map(_uint24, (left // 2, top // 2, width - 1, height - 1, 50)))
    return webp_chunk(b"ANMF", box + b"\0" + webp_pixel())


def _uint24(value: int) -> bytes:
    return value.to_bytes(3, "little")


def box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I", 8 + len(body)) + kind + body


def endless_box(kind: bytes) -> bytes:
    """The start of one that holds all that follows."""
    return struct.pack(">I4s", 2**31, kind)


def full_box(kind: bytes, *content: bytes, version: int = 0, flags: int = 0) -> bytes:
    return box(kind, struct.pack(">I", version << 24 | flags), *content)


ENDLESS_META = endless_box(b"meta") + bytes(4)


def heif(*boxes: bytes, brands: bytes = AVIF_BRANDS) -> bytes:
    return box(b"ftyp", brands) + b"".join(boxes)


def item_size(width: int, height: int) -> bytes:
    return full_box(b"ispe", struct.pack(">II", width, height))


def item_meta(*properties: bytes, primary: int = 1, items: dict[int, list[int]] | None = None) -> bytes:
    """`items`: which items have which properties, by their number, from 1."""
    entries = [struct.pack(">HB", item, len(numbers)) + bytes(numbers) for item, numbers in (items or {}).items()]
    associations = full_box(b"ipma", struct.pack(">I", len(entries)), *entries)
    associated = box(b"iprp", box(b"ipco", *properties), associations)
    return full_box(b"meta", full_box(b"pitm", struct.pack(">H", primary)), associated)


def track(width: int, height: int, samples: int, version: int = 0) -> bytes:
    """The part of a sequence that tells the size and the number of frames."""
    times = 32 if version else 20
    header = full_box(b"tkhd", bytes(times + 52), struct.pack(">II", width << 16, height << 16), version=version)
    sizes = full_box(b"stsz", struct.pack(">II", 1, samples))
    return box(b"moov", box(b"trak", header, box(b"mdia", box(b"minf", box(b"stbl", sizes)))))


# Tags of a TIFF file: (number, type, count, value); type 3 is SHORT, 4 is LONG.
Tag = tuple[int, int, int, int]


def directory(tags: list[Tag], following: int = 0, order: str = "<") -> bytes:
    """An IFD, and the offset of the following one."""
    entries = [struct.pack(f"{order}HHI", *tag[:3]) + _tag_value(tag, order) for tag in sorted(tags)]
    return struct.pack(f"{order}H", len(entries)) + b"".join(entries) + struct.pack(f"{order}I", following)


def _tag_value(tag: Tag, order: str) -> bytes:
    _, kind, _, value = tag
    return struct.pack(order + ("H" if kind == 3 else "I"), value).ljust(4, b"\0")


def tiff_header(first: int = 8, order: str = "<") -> bytes:
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", first)


def tiff_tags(width: int, height: int, data_at: int, data_size: int, compression: int = 1) -> list[Tag]:
    """Of a grey image in one strip."""
    values = {
        256: width,
        257: height,
        258: 8,
        259: compression,
        262: 1,
        273: data_at,
        277: 1,
        278: height,
        279: data_size,
    }
    return [(tag, 4, 1, value) for tag, value in values.items()]


def tiff(width: int, height: int, data: bytes, compression: int = 1) -> bytes:
    """The data lies between the header and the directory."""
    tags = tiff_tags(width, height, 8, len(data), compression)
    return tiff_header(8 + len(data)) + data + directory(tags)


def bmp(width: int, height: int, data: bytes) -> bytes:
    """24 bits per pixel; a negative height: from the top down."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(data), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, 54) + header + data


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def jpeg_with(extra: bytes, jpeg: bytes | None = None) -> bytes:
    """Segments after the start of a JPEG file."""
    jpeg = jpeg or saved("JPEG")
    return jpeg[:2] + extra + jpeg[2:]


def jpeg_of_size(width: int, height: int) -> bytes:
    """Only the header says so; the data is of a small image."""
    jpeg = saved("JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:at] + struct.pack(">HH", height, width) + jpeg[at + 4 :]
