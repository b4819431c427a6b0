"""Content types that suffixes of keys imply, so that a directory need not store them.

The table is a part of the format of directories: objects without a stored description have these types. So no entry
changes and none is added; the tables of `mimetypes` differ from machine to machine.
"""

from __future__ import annotations

from holdfast.storage.backend import CONTENT_TYPE

_TYPES = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "css": "text/css",
    "csv": "text/csv",
    "gif": "image/gif",
    "gz": "application/gzip",
    "heic": "image/heic",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jxl": "image/jxl",
    "m3u8": "application/vnd.apple.mpegurl",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "mpd": "application/dash+xml",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "ts": "video/mp2t",
    "txt": "text/plain",
    "vtt": "text/vtt",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xml": "application/xml",
    "zip": "application/zip",
}


def implied_type(key: str) -> str:
    """Of a key without such a suffix: that of an object without a content type."""
    return _TYPES.get(key.rpartition(".")[2].lower(), CONTENT_TYPE)
