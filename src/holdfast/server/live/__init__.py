"""Live updates: the event feed, server-sent events, and long polls."""
