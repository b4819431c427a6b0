"""Pictures drawn by rules from the words of a prompt: the same for the same words, size, seed and style."""

from holdfast.workloads.generation.drawing.picture import draw

__all__ = ["draw"]
