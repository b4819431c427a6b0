"""The HTTP face: control plane, worker API, admin API, live streams. Read `app.py` first: all routes are there."""
