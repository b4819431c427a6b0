"""Puts an object of so many MiB in chunks, reads it back, and prints by how many MiB its memory grew at most.

python -m tests.storage.measure_memory URL MIB
"""

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.storage import open_storage

MIB = 1 << 20


def peak_mib() -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def new_peak_mib() -> float:
    """It begins anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_mib()


async def main(url: str, mib: int) -> None:
    written, read = hashlib.sha256(), hashlib.sha256()

    async def source() -> AsyncIterator[bytes]:
        for n in range(mib):
            chunk = bytes([n % 251]) * MIB
            written.update(chunk)
            yield chunk

    async with open_storage(url) as storage:
        await storage.put("small", b"x")  # what the library itself needs is there after the first time
        await storage.read("small")
        before = new_peak_mib()
        info = await storage.put("big", source())
        after_put = peak_mib()
        async for chunk in await storage.get("big"):
            read.update(chunk)
    grew = {"put": after_put - before, "get": peak_mib() - before}
    print(json.dumps(grew | {"size": info.size, "same": written.digest() == read.digest()}))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
