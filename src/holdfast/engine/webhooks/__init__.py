"""Webhooks in the database: subscriptions, deliveries, alerts."""
