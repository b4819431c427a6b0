"""Finds out what an upload is while its bytes pass by: type, size and number of frames, without decoding it."""

from holdfast.workloads.images.probe.prober import ImageInfo, Prober

__all__ = ["ImageInfo", "Prober"]
