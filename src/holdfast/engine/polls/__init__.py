"""Polls: cheap reads that workers, servers and maintenance repeat about once a second."""
