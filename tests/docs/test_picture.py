"""The picture on the first page shows the columns that `holdfast top` has."""

import html
import re

import pytest

from holdfast.cli.output import Cell, Styled
from holdfast.cli.top import render
from tests.docs.picture import PICTURE

TITLES = [render.QUEUE_TITLES, render.WORKER_TITLES, render.RUNNING_TITLES, render.ENDED_TITLES]


@pytest.mark.parametrize("titles", TITLES, ids=lambda titles: str(titles[0]))
def test_the_picture_of_top_has_the_titles_of_each_table(titles: list[Cell]) -> None:
    rows: dict[str, list[str]] = {}  # by their height in the picture
    drawing = PICTURE.read_text(encoding="utf-8")
    for height, text in re.findall(r'<text class="top-\w+" [^>]*y="([\d.]+)"[^>]*>(.*?)</text>', drawing):
        rows.setdefault(height, []).append(html.unescape(text).replace("\xa0", " ").strip())
    shown = [title.text if isinstance(title, Styled) else title for title in titles]
    assert shown in rows.values(), "run `python -m tests.docs.picture`"
