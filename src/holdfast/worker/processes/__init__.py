"""Worker processes and their children: the supervisor, the process pool, and the protocols between them."""
