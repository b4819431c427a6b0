"""Metrics of object storage: durations and errors."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.observe.extension_metrics import DeclaredCounter, DeclaredHistogram

OPERATION_SECONDS = (0.1, 0.3, 0.5, 1, 3, 5, 7, 10)
LABELS = ("operation", "bucket")


class StorageMetrics:
    def __init__(self) -> None:
        self._took = DeclaredHistogram(
            "s3_operation_duration_seconds", "Duration of S3 operations.", LABELS, OPERATION_SECONDS
        )
        self._errors = DeclaredCounter("s3_operation_errors_total", "Failed S3 operations.", (*LABELS, "error_code"))
        self.instruments = (self._took, self._errors)

    def of(self, bucket: str) -> Callable[[str, float, BaseException | None], None]:
        """The `watch` callback for the storage of this bucket."""

        def watch(operation: str, seconds: float, error: BaseException | None) -> None:
            self._took.observe(seconds, operation, bucket)
            if error is not None:
                code = error.code if isinstance(error, HoldfastError) else type(error).__name__
                self._errors.add(1, operation, bucket, code)

        return watch


storage_metrics = StorageMetrics()  # of this process
