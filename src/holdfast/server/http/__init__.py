"""HTTP itself: sockets, limits, routing, request bodies, problems."""
