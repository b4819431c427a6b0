"""Maps errors of the HTTP library to OutboundError."""

from __future__ import annotations

import httpcore2
import httpx2

from holdfast.errors import MalformedAnswer, OutboundError, OutboundTimeout, Unreachable
from holdfast.net.connections import CheckedConnection
from holdfast.net.egress_rules import Target
from holdfast.net.limits import Limits

REASON_MAX = 500


def outbound(
    error: Exception, target: Target, limits: Limits, connection: CheckedConnection | None = None
) -> OutboundError | None:
    """The error to raise instead; None: raise the original."""
    about = target.authority
    match error:
        case httpcore2.ConnectTimeout():
            return OutboundTimeout(f"no connection within {limits.connect_seconds:g} s", about=about)
        case httpcore2.TimeoutException() if connection is not None and connection.stream.seconds_left > 0:
            return OutboundTimeout(f"no data received for {limits.read_seconds:g} s", about=about)
        case TimeoutError() | httpcore2.TimeoutException():
            return OutboundTimeout(f"no response within {limits.total_seconds:g} s", about=about)
        case httpcore2.ProtocolError() if connection is not None and not connection.stream.has_ended:
            return MalformedAnswer(_reason(error), about=about)
        case httpcore2.NetworkError() | httpcore2.ProtocolError():
            return Unreachable(_reason(error), about=about)
        case httpx2.DecodingError():
            return MalformedAnswer("the body cannot be decompressed", about=about)
    return None


def _reason(error: Exception) -> str:
    """Without control characters: the text may come from the server."""
    text = "".join(letter for letter in str(error) if letter.isprintable())
    return f"{type(error).__name__}: {text}"[:REASON_MAX]
