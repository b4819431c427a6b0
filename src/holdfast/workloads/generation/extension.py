"""The extension object of the generation service, its metrics and its scopes."""

from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.workloads.generation.settings import Settings

try:
    import PIL  # noqa: F401
    import re2  # type: ignore[import-untyped]  # noqa: F401
except ImportError:
    raise Invalid(
        "the generation service needs libraries that are not installed: pip install 'holdfast[generation]'",
        code="extra_missing",
    ) from None

EXAMPLE = """curl {url}/generations --json '{{"prompt": "a lighthouse at night"}}'
  curl {url}/credits"""

ext = Extension("generation", settings=Settings, example=EXAMPLE)

WRITE = ext.scope("write", "generate images, cancel that, and change your library")
OPERATE = "admin:operate"  # for jobs that only the service itself and operators create
READ = ext.scope("read", "read your generations, your library and your credits")

images_made = ext.counter("images", "Images that providers made.", ("provider",))
provider_errors = ext.counter("provider_errors", "Failed calls of providers.", ("provider", "code"))
provider_seconds = ext.histogram(
    "provider_seconds",
    "Duration of calls of providers.",
    ("provider", "operation"),
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100),
)
provider_cost = ext.counter(
    "provider_cost_micros", "What providers charged, in millionths of the currency.", ("provider",)
)
refusals = ext.counter("refusals", "Requests that were refused.", ("code",))
rejections = ext.counter("rejections", "Generations that were rejected after they were accepted.", ("code",))
credits_moved = ext.counter("credits", "Credits that moved, by the kind of ledger entry.", ("kind",))
