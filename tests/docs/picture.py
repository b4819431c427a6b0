"""Draws docs/images/top.svg, the picture on the first page: `python -m tests.docs.picture`.

A worker runs the jobs of a small shop, and what `holdfast top` shows of it on a terminal becomes an SVG.
"""

from __future__ import annotations

import io
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.cli.background import Background, until
from tests.cli.processes import environment, on_terminal
from tests.docs.pages import ROOT

PICTURE = ROOT / "docs" / "images" / "top.svg"
COLUMNS = 118
SHOP = """
import asyncio

from holdfast import App, Context, Permanent

app = App()


@app.job(queue="mail")
async def send_email(ctx: Context, to: str) -> None:
    await asyncio.sleep(0.2)
    if to == "unknown@example.com":
        raise Permanent("mailbox_unknown", "there is no such mailbox")
    if to == "busy@example.com":
        raise ConnectionError("the mail server is busy")


@app.job(queue="images")
async def resize(ctx: Context, width: int) -> None:
    for done in range(0, 100, 2):
        await ctx.progress(done, "scale" if done < 60 else "encode")
        await asyncio.sleep(0.5)


@app.job(queue="reports")
async def monthly_report(ctx: Context, month: int) -> None:
    for done in range(100):
        await ctx.progress(done, "sum up the orders")
        await asyncio.sleep(0.4)


async def main() -> None:
    async with app:
        for width in (320, 640, 1280, 1920):
            await resize.enqueue(width=width)
        await monthly_report.enqueue(month=11)
        for name in ["unknown", "busy", *(f"customer{n}" for n in range(250))]:
            await send_email.enqueue(to=f"{name}@example.com")
        await send_email.options(delay=3600).enqueue(to="later@example.com")


if __name__ == "__main__":
    asyncio.run(main())
"""
# Rich's own form without the fonts that it would load from elsewhere.
_FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def seen(folder: Path) -> str:
    """What `holdfast top` shows while the worker is busy."""
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    subprocess.run([sys.executable, "shop.py"], cwd=folder, env=environment(), check=True)
    worker = Background("worker", "--app", "shop:app", "--name", "shop-1", "--concurrency", "8", folder=folder)
    with worker:
        until(lambda: _ended(folder) > 40)
        _, shown = on_terminal("top", "--once", "--interval", "2", folder=folder, columns=COLUMNS)
    return "\n".join(shown.splitlines()[:30])


def _ended(folder: Path) -> int:
    with closing(sqlite3.connect(folder / ".holdfast" / "holdfast.db")) as database:
        [[ended]] = database.execute("SELECT count(*) FROM holdfast_jobs WHERE state = 'succeeded'").fetchall()
    return int(ended)


def drawn(shown: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in shown.splitlines():
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    drawing = console.export_svg(title="holdfast top", code_format=_FORM, unique_id="top")
    return re.sub(r"[ \t]+(?=\n)", "", drawing)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        PICTURE.write_text(drawn(seen(Path(directory))), encoding="utf-8")
