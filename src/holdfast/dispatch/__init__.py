"""Hints through a broker. Losing every one of them costs time, never a job: the database decides."""
