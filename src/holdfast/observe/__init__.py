"""What can be seen from outside: metrics, logs and traces. Nothing in here decides anything."""
