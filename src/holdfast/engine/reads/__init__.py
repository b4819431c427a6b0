"""Reads: jobs, history, statistics, health, and why a job does not run."""
