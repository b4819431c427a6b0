"""Guards of prompts: listed words and patterns, and classifiers as plug-ins."""

from holdfast.workloads.generation.guard.prompt_guard import PromptGuard

__all__ = ["PromptGuard"]
