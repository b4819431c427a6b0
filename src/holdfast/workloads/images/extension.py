"""The extension object of the image service, its metrics and its scopes."""

from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.workloads.images.settings import Settings

try:
    import PIL  # noqa: F401
except ImportError:
    raise Invalid(
        "the image service needs a library that is not installed: pip install 'holdfast[images]'", code="extra_missing"
    ) from None

ext = Extension("images", settings=Settings, example="curl -X POST -T PHOTO.jpg {url}/images\n  curl {url}/images")

WRITE = ext.scope("write", "upload, reprocess, cancel and delete images")
READ = ext.scope("read", "read images and their variants")

CDN_SECONDS = (0.1, 0.3, 0.5, 1, 3, 5, 7, 10)
processing_errors = ext.counter(
    "image_processing_errors_total", "Images that failed to process.", ("error_type",), exact=True
)
cdn_seconds = ext.histogram(
    "cloudfront_operation_duration_seconds",
    "Duration of CloudFront operations.",
    ("operation",),
    buckets=CDN_SECONDS,
    exact=True,
)
cdn_errors = ext.counter(
    "cloudfront_operation_errors_total", "Failed CloudFront operations.", ("operation", "error_code"), exact=True
)
