"""Webhooks and alerts: what the event log says, told to others at least once."""
