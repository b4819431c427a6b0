"""The image generation service, for the tests of this folder."""

from tests.workloads.generation.steps import blocklist, clock, generation_settings, service

__all__ = ["blocklist", "clock", "generation_settings", "service"]
