"""The sources of a worker: the database itself, or a server over HTTP."""
