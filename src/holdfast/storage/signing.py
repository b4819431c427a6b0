"""Signed URLs for backends without presigned URLs: a token that a route of the app verifies.

The token is bound to method, key and expiry time; nothing is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from holdfast.clock import Clock
from holdfast.errors import Forbidden, Invalid
from holdfast.storage.checks import check_key

SECRET_BYTES_MIN = 16
SECONDS_MAX = 7 * 86_400  # the limit of S3
METHODS = ("GET", "HEAD", "PUT", "DELETE")

_TOKEN = re.compile(r"1\.([1-9][0-9]{0,11})\.([0-9a-f]{64})")


def check_terms(method: str, seconds: int) -> None:
    """Validate method and lifetime of a signed URL."""
    if method not in METHODS:
        raise Invalid(f"a signed URL is for one of {', '.join(METHODS)}, not {method!r}", code="invalid_signed_url")
    if not isinstance(seconds, int) or not 1 <= seconds <= SECONDS_MAX:
        raise Invalid(
            f"a signed URL is valid for 1 to {SECONDS_MAX} whole seconds, not {seconds!r}", code="invalid_signed_url"
        )


class Signer:
    """All processes that sign or verify need the same secret."""

    def __init__(self, secret: bytes, clock: Clock | None = None) -> None:
        if len(secret) < SECRET_BYTES_MIN:
            raise Invalid(f"a signing secret needs at least {SECRET_BYTES_MIN} bytes", code="invalid_signing_secret")
        self._secret, self._clock = secret, clock or Clock()

    def sign(self, method: str, key: str, seconds: int) -> str:
        """A token of characters that need no escaping in a URL."""
        check_terms(method, seconds)
        expires = int(self._clock.now().timestamp()) + seconds
        return f"1.{expires}.{self._signature(method, check_key(key), expires)}"

    def verify(self, token: str, method: str, key: str) -> None:
        """Forbidden, unless the token was signed for this method and key and has not expired."""
        read = _TOKEN.fullmatch(token)
        expires = int(read[1]) if read else 0
        expected = self._signature(method, key, expires)
        if read is None or not hmac.compare_digest(read[2], expected):
            raise Forbidden("this URL is not signed for this request", code="invalid_signature")
        if self._clock.now().timestamp() >= expires:
            raise Forbidden("this signed URL has expired; request a new one", code="signature_expired")

    def _signature(self, method: str, key: str, expires: int) -> str:
        message = f"1\n{method}\n{expires}\n{key}".encode("utf-8", "backslashreplace")
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()
