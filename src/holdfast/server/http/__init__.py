"""The HTTP layer: sockets, limits, routing, request bodies, error responses."""
