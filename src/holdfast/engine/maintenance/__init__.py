"""Maintenance: bounded steps that any number of processes may run concurrently."""
