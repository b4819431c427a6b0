"""The complete extension: importing these modules declares what belongs to it."""

from holdfast.workloads.images import checks, hooks, jobs, routes
from holdfast.workloads.images.extension import ext

__all__ = ["checks", "ext", "hooks", "jobs", "routes"]
