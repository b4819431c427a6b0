"""Hints that work is available, through a broker. A lost hint costs time, never a job: polling finds every job."""
