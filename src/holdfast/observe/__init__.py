"""Observability: metrics, logs and traces. Nothing here affects what the engine does."""
