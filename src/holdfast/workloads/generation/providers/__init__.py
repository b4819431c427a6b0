"""The providers of images, by the names that requests and settings use."""

from holdfast.workloads.generation.providers.base import Provider
from holdfast.workloads.generation.settings import Settings


def open_provider(name: str, settings: Settings) -> Provider:
    """It belongs to the event loop that uses it first. Raises `Invalid` for settings that cannot work."""
    match name:
        case "local":
            from holdfast.workloads.generation.providers.local import LocalProvider

            return LocalProvider()
        case "openai":
            from holdfast.workloads.generation.providers.openai import OpenAIProvider

            return OpenAIProvider(settings)
        case "poll":
            from holdfast.workloads.generation.providers.poll import PollProvider

            return PollProvider(settings)
    raise ValueError(f"there is no provider {name!r}")
