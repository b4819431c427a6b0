"""Whether the cost of a job grows with what the database has seen or holds (`python -m benchmarks.growth`)."""
