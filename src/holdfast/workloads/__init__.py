"""Services built on the platform: each is an extension that uses only the public API, and nothing imports it."""
