"""Heartbeats from a process of their own: no handler can starve the leases of its worker."""
