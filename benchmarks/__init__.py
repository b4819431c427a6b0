"""What the core costs, against hand-written SQL that does only the work itself. `make bench` runs `benchmarks.core`."""
