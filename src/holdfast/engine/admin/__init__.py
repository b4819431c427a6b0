"""Administration: keys, sessions, queues, workers, extensions, and the audit log."""
