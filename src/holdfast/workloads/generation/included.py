"""The complete extension: importing these modules declares what belongs to it."""

from holdfast.workloads.generation import checks, hooks, jobs, startup
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.routes import accounts, admin, assets, generations, webhooks

__all__ = ["accounts", "admin", "assets", "checks", "ext", "generations", "hooks", "jobs", "startup", "webhooks"]
