"""Compares Holdfast with its peers on one machine (`make bench-peers`); docs/performance.md shows it."""
