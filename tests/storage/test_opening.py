"""Which URLs name a storage, and what is said of the others."""

from typing import Any

import pytest

from holdfast.errors import Invalid
from holdfast.storage import open_storage


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("", "no name"),
        ("  ", "no name"),
        ("file://", "no name"),
        ("file://host/path", "without a host"),
        ("file:///path?x=1", "without options"),
        ("memory://x", "not supported"),
        ("gs://bucket", "not supported"),
        ("https://example.com", "not supported"),
        ("s3://", "name of the bucket"),
        ("s3://a", "name of the bucket"),
        ("s3://a/b?region=x", "name of the bucket"),
        ("s3://key:hunter2@bucket", "must not contain credentials"),
        ("s3://bucket?endpont=http://hunter2", "unknown option 'endpont'"),
        ("s3://bucket?endpoint=ftp://hunter2", "an endpoint is"),
        ("s3://bucket?endpoint=http://user:hunter2@host", "an endpoint is"),
        ("s3://[bucket", "is malformed"),
        ("s3:bucket", "incomplete"),
        ("S3:/hunter2", "incomplete"),
        ("file:/srv/files", "incomplete"),
        ("memory:", "incomplete"),
        (None, "is empty"),
    ],
)
def test_an_invalid_storage_url_is_an_error_without_its_secrets(url: str, fault: str) -> None:
    with pytest.raises(Invalid, match=fault) as refused:
        open_storage(url)
    assert refused.value.code == "invalid_storage_url"
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("given", [{"request_seconds": 0}, {"retries": -1}])
def test_an_invalid_limit_is_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        open_storage("s3://bucket", **given)
    assert refused.value.code == "invalid_field"


def test_an_invalid_storage_prefix_is_rejected() -> None:
    with pytest.raises(Invalid) as refused:
        open_storage("s3://bucket/a/../b")
    assert refused.value.code == "invalid_object_key"


@pytest.mark.parametrize(
    ("url", "shown", "bucket"),
    [
        ("s3://bucket/a/b/?region=eu-west-1", "s3://bucket/a/b", "bucket"),
        ("s3://bucket", "s3://bucket", "bucket"),
        ("memory://", "memory://", "memory"),
    ],
)
def test_the_repr_of_storage_shows_its_location(url: str, shown: str, bucket: str) -> None:
    storage = open_storage(url, access_key_id="a-key", secret_access_key="hunter2")
    assert (storage.url, storage.bucket, repr(storage)) == (shown, bucket, f"Storage({shown!r})")
