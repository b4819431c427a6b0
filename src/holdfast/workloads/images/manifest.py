"""What every process may know of the image service, whether or not it runs it. Imports none of its extras."""

from holdfast.manifest import Manifest
from holdfast.workloads.images.lifecycle import IMAGES
from holdfast.workloads.images.settings import Settings

manifest = Manifest(
    name="images",
    settings=Settings,
    lifecycles=(IMAGES,),
    job_types=("IMAGE_PROCESS", "IMAGE_REPROCESS", "IMAGE_DELETE", "IMAGE_CANCEL", "IMAGE_PURGE", "IMAGE_SWEEP"),
    scopes=("images:read", "images:write"),
)
