"""Bounded maintenance steps that any number of processes may run at once."""
