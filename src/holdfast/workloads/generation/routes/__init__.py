"""The HTTP API of the generation service."""
