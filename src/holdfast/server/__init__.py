"""HTTP: control plane, worker API, admin API, live streams. Read `server/app.py` first: all routes are there."""
