"""Maintenance that every process can run: the maintainer, the crash detector, and the rotation between processes."""
