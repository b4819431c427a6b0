"""Finds the route of a path: a prefix tree of path segments, independent of the number of routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar
from urllib.parse import unquote

T = TypeVar("T")


class Router(Generic[T]):
    """`/jobs/{job_id}` matches every path of two segments under `/jobs/` that is not itself a route."""

    def __init__(self, routes: Mapping[str, T]) -> None:
        self._static = {path: route for path, route in routes.items() if "{" not in path}
        self._root: _Node[T] = _Node()
        for path, route in routes.items():
            self._root.insert(path.split("/")).route = route

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """The route and its path parameters."""
        if (route := self._static.get(path)) is not None:
            return route, {}
        return self._find(path.split("/"))

    def find_encoded(self, raw_path: bytes) -> tuple[T, dict[str, str]] | None:
        """Of a path as it was sent: an encoded slash is part of a parameter."""
        return self._find([unquote(segment) for segment in raw_path.decode("ascii", "replace").split("/")])

    def _find(self, segments: list[str]) -> tuple[T, dict[str, str]] | None:
        node, parameters = self._root, {}
        for segment in segments:
            if (child := node.children.get(segment)) is None:
                if node.wildcard is None or not segment:
                    return None
                child, parameters[node.parameter] = node.wildcard, segment
            node = child
        return None if node.route is None else (node.route, parameters)


class _Node(Generic[T]):
    __slots__ = ("children", "parameter", "route", "wildcard")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.parameter = ""
        self.wildcard: _Node[T] | None = None  # for any other segment; its value is `parameter`
        self.route: T | None = None

    def insert(self, segments: list[str]) -> _Node[T]:
        node = self
        for segment in segments:
            if not segment.startswith("{"):
                node = node.children.setdefault(segment, _Node())
                continue
            if node.parameter not in ("", segment[1:-1]):
                raise ValueError(f"a path segment has two parameter names: {node.parameter} and {segment}")
            node.wildcard = node.wildcard or _Node()
            node.parameter, node = segment[1:-1], node.wildcard
        return node
