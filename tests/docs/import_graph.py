"""Draws the layers of the package and the imports between them: `python -m tests.docs.import_graph`.

The layers come from the import contract in pyproject.toml, the arrows from the imports in the source. Left out are
arrows that follow from others, and those to the lowest layer, which every module imports.
"""

from __future__ import annotations

import re
import tomllib
from html import escape

import grimp

from tests.docs.pages import ROOT

PICTURE = ROOT / "docs" / "images" / "imports.svg"
WIDTH, ROW, BOX, GAP = 960, 76, 34, 14
_STYLE = """
  .box { fill: #eef2ff; stroke: #6366f1; } .name { fill: #1e1b4b; font: 14px ui-monospace, monospace; }
  .import { stroke: #94a3b8; stroke-width: 1.2; fill: none; marker-end: url(#tip); } .tip { fill: #94a3b8; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #1e1b4b; stroke: #818cf8; } .name { fill: #e0e7ff; } .import { stroke: #64748b; }
    .tip { fill: #64748b; }
  }
"""


def layers() -> list[list[str]]:
    """The modules of each layer that exist, from the top down."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [one for one in config["tool"]["importlinter"]["contracts"] if one.get("exhaustive")]
    rows = [re.findall(r"\w+", layer) for layer in contract["layers"]]
    package = ROOT / "src" / "holdfast"
    exist = [[name for name in row if (package / name).is_dir() or (package / f"{name}.py").is_file()] for row in rows]
    return [row for row in exist if row]


def imports(rows: list[list[str]]) -> set[tuple[str, str]]:
    """Which module imports which of a lower layer."""
    level = {name: number for number, row in enumerate(rows) for name in row}
    graph = grimp.build_graph("holdfast", cache_dir=None)
    found = set()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = _top(module), _top(imported)
            if all(name in level for name in pair) and level[pair[0]] < level[pair[1]]:
                found.add(pair)
    return {pair for pair in found if pair[1] not in rows[-1] and not _follows(pair, found)}


def _top(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _follows(pair: tuple[str, str], found: set[tuple[str, str]]) -> bool:
    """There is another way from the one to the other."""
    reached, todo = set[str](), [name for start, name in found if start == pair[0] and name != pair[1]]
    while todo:
        at = todo.pop()
        reached.add(at)
        todo += [name for start, name in found if start == at and name not in reached]
    return pair[1] in reached


def svg() -> str:
    rows = layers()
    places: dict[str, tuple[float, float, float]] = {}
    boxes = []
    for number, row in enumerate(rows):
        widths = [len(name) * 8.6 + 20 for name in row]
        x = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2
        y = 12 + number * ROW
        for name, width in zip(row, widths, strict=True):
            places[name] = x + width / 2, y, width
            boxes.append(f'<rect class="box" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BOX}" rx="6"/>')
            boxes.append(f'<text class="name" x="{x + 10:.1f}" y="{y + 22}">{escape(name)}</text>')
            x += width + GAP
    arrows = []
    for upper, lower in sorted(imports(rows)):
        (ax, ay, _), (bx, by, _) = places[upper], places[lower]
        arrows.append(
            f'<path class="import" d="M{ax:.1f} {ay + BOX} C{ax:.1f} {ay + BOX + 26} '
            f'{bx:.1f} {by - 26} {bx:.1f} {by - 3}"/>'
        )
    height = 12 + len(rows) * ROW - (ROW - BOX) + 12
    tip = '<marker id="tip" markerWidth="7" markerHeight="7" refX="5" refY="3" orient="auto">'
    tip += '<path class="tip" d="M0 0L6 3L0 6z"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Imports">'
    return "\n".join([head, f"<style>{_STYLE}</style>", f"<defs>{tip}</defs>", *arrows, *boxes, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(svg(), encoding="utf-8")
