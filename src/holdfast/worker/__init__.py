"""The runtime that runs handlers: it claims through a source, keeps the leases alive, and reports how each ended."""
