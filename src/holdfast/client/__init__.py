"""The HTTP client: async by hand, sync made from it."""
