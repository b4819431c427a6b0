"""Webhooks and alerts: delivers events from the event log over HTTP, at least once."""
