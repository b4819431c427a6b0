"""Compares Holdfast with its peers on one machine (`make bench-peers`); docs/internals/performance.md shows it."""
