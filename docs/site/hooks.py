"""What MkDocs cannot do by itself: pages from the root of the project, and links to files outside of docs/.

A build fails when one of its pages would load something from another host.

Links in the pages are relative to the repository, so that they also work on a code host. These hooks turn them into
links of the site: a page of the root has a place in it, and any other file that is linked to is copied below `files/`.
"""

from __future__ import annotations

import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ADDED = {
    "ARCHITECTURE.md": "internals/architecture.md",
    "CONTRIBUTING.md": "internals/contributing.md",
    "CHANGELOG.md": "internals/changelog.md",
    "examples/README.md": "start/examples.md",
    "deploy/README.md": "operate/deploy-files.md",
}
HOME = {"README.md": "index.md"}
_ORIGIN = {place: path for path, place in ADDED.items()}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_FENCED = re.compile(r"(?ms)^(```.*?^```)$")


def on_config(config: Any) -> Any:
    """Anchors as code hosts make them."""
    from pymdownx.slugs import slugify

    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, place in ADDED.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    pages = {_origin(file.src_uri): file.content_string for file in list(files.documentation_pages())}
    linked = {target for page, text in pages.items() for target in _targets(page, text)}
    for path in sorted(target for target in linked if _place(target).startswith("files/")):
        if (ROOT / path).is_file():
            files.append(File.generated(config, _place(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    uri = page.file.src_uri

    def relinked(found: re.Match[str]) -> str:
        if _is_elsewhere(found[2]):
            return found[0]
        path, hash_sign, anchor = found[2].partition("#")
        place = _place(posixpath.normpath(posixpath.join(posixpath.dirname(_origin(uri)), path)))
        return f"{found[1]}{posixpath.relpath(place, posixpath.dirname(uri) or '.')}{hash_sign}{anchor}{found[3]}"

    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)


def on_post_build(config: Any) -> None:
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    for page in sorted(site.rglob("*.html")):
        if found := loaded_from_elsewhere(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.relative_to(site)} loads from another host: {', '.join(found)}")


def loaded_from_elsewhere(html: str) -> list[str]:
    """What a browser would fetch from another host for this page; links that a reader follows do not count."""
    parser = _Loads()
    parser.feed(html)
    return parser.found


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = (given.get("href") if tag == "link" else given.get("src")) or ""
        if address.startswith("//") or "://" in address:
            self.found.append(address)
        if tag == "pre" and "mermaid" in (given.get("class") or "").split():
            self.found.append("Mermaid")  # the theme fetches it for such a block


def _targets(page: str, text: str) -> set[str]:
    links = (found[1] for found in _LINK.findall(_FENCED.sub("", text)) if not _is_elsewhere(found[1]))
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0])) for link in links}


def _is_elsewhere(link: str) -> bool:
    return "://" in link or link.startswith(("#", "mailto:"))


def _origin(uri: str) -> str:
    """Where a page of the site comes from, from the root of the repository."""
    return _ORIGIN.get(uri, f"docs/{uri}")


def _place(path: str) -> str:
    """Where a file of the repository is in the site."""
    return (ADDED | HOME).get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}")
