"""What can go wrong with an image, each with the stable code that clients see."""

CORRUPT = "corrupt_image"
UNSUPPORTED = "unsupported_image"
TOO_LARGE = "image_too_large"
TOO_MANY_PIXELS = "image_too_many_pixels"
TOO_MANY_FRAMES = "image_too_many_frames"
OUT_OF_MEMORY = "image_out_of_memory"
ORIGINAL_MISSING = "original_missing"
INTERNAL = "internal_error"  # one that the service does not know

OF_IMAGE = (CORRUPT, UNSUPPORTED, TOO_MANY_PIXELS, TOO_MANY_FRAMES)  # their messages are about the image alone
# What clients see of other errors: their own messages may name hosts and paths.
MESSAGES = {
    CORRUPT: "the image cannot be decoded",
    UNSUPPORTED: "the format of the image is not supported",
    TOO_LARGE: "the image is too large",
    TOO_MANY_PIXELS: "the image has too many pixels",
    TOO_MANY_FRAMES: "the image has too many frames",
    OUT_OF_MEMORY: "the image needs more memory than its processing may use",
    ORIGINAL_MISSING: "the uploaded file is missing in the storage",
    "canceled": "canceled",
    "storage_unavailable": "the storage is unavailable",
    "storage_throttled": "the storage asks for fewer requests",
    "storage_denied": "the storage denied access",
    "storage_error": "the storage failed",
    "cdn_unavailable": "the CDN is unavailable",
    "cdn_throttled": "the CDN asks for fewer requests",
    "cdn_denied": "the CDN denied access",
    "cdn_not_found": "the CDN has no such distribution",
    "E_CRASHED": "the process that worked on the image was killed",
    "E_CPU_LIMIT": "the image needs more CPU time than its processing may use",
    "E_TIMEOUT": "processing did not finish in time",
    "timeout": "processing did not finish in time",
    "timeout_soft": "the worker that processed the image was lost",
    "poison": "the image ended the process that worked on it several times",
}


class ImageFault(Exception):
    """The image itself is at fault: trying again cannot help. `message` is for clients."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message
