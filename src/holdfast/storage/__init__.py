"""Object storage for extensions: a directory, S3 or memory, behind one interface. Start with `open_storage(url)`."""

from holdfast.storage.backend import ObjectInfo
from holdfast.storage.objects import Download, Watch
from holdfast.storage.open import check_shared_storage_url, check_storage_url, open_storage
from holdfast.storage.signing import Signer
from holdfast.storage.staging import Staged, StaleStaging
from holdfast.storage.storage import Storage

__all__ = [
    "Download",
    "ObjectInfo",
    "Signer",
    "Staged",
    "StaleStaging",
    "Storage",
    "Watch",
    "check_shared_storage_url",
    "check_storage_url",
    "open_storage",
]
