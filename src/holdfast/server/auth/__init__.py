"""Authentication, sessions and rate limits."""
