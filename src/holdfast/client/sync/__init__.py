"""The client for code without an event loop: generated, see `tests/client/generate.py`."""
