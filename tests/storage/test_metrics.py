"""Storage that is watched feeds the families of S3."""

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import ObjectNotFound
from holdfast.observe.storage_metrics import StorageMetrics
from holdfast.observe.worker_metrics import WorkerMetrics
from holdfast.storage import Storage


async def test_storage_metrics_count_operations_and_failures(opened: Callable[..., Storage], kind: str) -> None:
    """R000-64, R000-65."""
    registry, storage, metrics = WorkerMetrics(), opened(kind), StorageMetrics()
    registry.adopt(metrics.instruments)
    storage.watch = metrics.of(storage.bucket)
    await storage.put("a", b"x")
    with pytest.raises(ObjectNotFound):
        await storage.head("missing")
    families = text_string_to_metric_families(registry.text().decode())
    counted = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
        if sample.name in ("s3_operation_duration_seconds_count", "s3_operation_errors_total")
    }
    assert counted == {
        ("s3_operation_duration_seconds_count", *sorted(["put", storage.bucket])): 1,
        ("s3_operation_duration_seconds_count", *sorted(["head", storage.bucket])): 1,
        ("s3_operation_errors_total", *sorted(["head", storage.bucket, "object_not_found"])): 1,
    }
