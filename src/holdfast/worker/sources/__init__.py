"""Where a worker's jobs come from: the database itself, or a server over HTTP."""
