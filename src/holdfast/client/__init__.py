"""The HTTP client: async by hand, sync generated from it (`python -m tests.client.generate`)."""
