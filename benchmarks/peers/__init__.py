"""Holdfast beside its peers in one run on one machine. `make bench-peers` runs it; docs/performance.md shows it."""
