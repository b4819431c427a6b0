"""What each microsecond of a job goes to (`python -m benchmarks.budget`)."""
