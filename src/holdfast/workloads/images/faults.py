"""What can be wrong with an image, each with the stable code that clients see."""

CORRUPT = "corrupt_image"
UNSUPPORTED = "unsupported_image"
TOO_LARGE = "image_too_large"
TOO_MANY_PIXELS = "image_too_many_pixels"
TOO_MANY_FRAMES = "image_too_many_frames"
OUT_OF_MEMORY = "image_out_of_memory"


class ImageFault(Exception):
    """The image itself is at fault: trying again cannot help. `message` is for clients."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message
