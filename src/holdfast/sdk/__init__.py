"""The Python SDK: `App`, its job types, its connections, and what a caller holds of a job."""
