"""ARCHITECTURE.md: its picture is current, and the walk of a job stays short."""

from __future__ import annotations

import re

from tests.docs.import_graph import PICTURE, svg
from tests.docs.pages import PAGES, ROOT

SOURCE = ROOT / "src" / "holdfast"
WALK = PAGES["ARCHITECTURE.md"].partition("## The walk of a job")[2].partition("**Otherwise.**")[0]
HOPS = dict(re.findall(r"`([\w/]+\.(?:py|sql)): (\w+)`", WALK))


def test_the_picture_of_the_imports_is_current() -> None:
    assert PICTURE.read_text(encoding="utf-8") == svg(), "run python -m tests.docs.import_graph"


def test_a_job_is_followed_from_enqueue_to_complete_in_15_files() -> None:
    below = [path for path in HOPS if path.startswith(("engine/", "store/"))]
    read = {path: lines_read(path, HOPS[path]) for path in below}
    assert len(HOPS) <= 15, HOPS
    assert len(below) <= 11, below
    assert sum(read.values()) <= 1000, read


def lines_read(path: str, name: str) -> int:
    """Of a file with SQL, the statement; of Python, the whole file, but of the list of verbs the three on the way."""
    text = (SOURCE / path).read_text(encoding="utf-8")
    if path.endswith(".sql"):
        text = text.partition(f"-- name: {name}\n")[2].partition("-- name:")[0]
    if name == "Engine":
        verbs = re.findall(
            r"(?ms)^    async def (?:create_many|claim)\(.*?(?=^    (?:async )?def )|^    complete_many = .*?\n", text
        )
        assert len(verbs) == 3
        text = "".join(verbs)
    return len(text.splitlines())
