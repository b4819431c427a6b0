"""Encodes and decodes hints: a few bytes of JSON, the same for every broker. Received messages are validated."""

from __future__ import annotations

import msgspec

from holdfast.errors import Invalid
from holdfast.ids import is_uuid
from holdfast.model.hint import Hint
from holdfast.model.names import check_name

BYTES_MAX = 1024  # any queue name fits, with the job's id
LEVELS = ("high", "normal", "low")  # of priority, the highest first

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str | None, str | None, int]).decode


def level_of(hint: Hint) -> str:
    return "high" if hint.priority > 0 else "low" if hint.priority < 0 else "normal"


def written(hint: Hint) -> bytes:
    """`["mail","SEND_EMAIL","0198...",0]`. A type name that is too long is left out: the hint then covers any type."""
    message = _encode(hint)
    return message if len(message) <= BYTES_MAX else _encode(hint._replace(type=None))


def read(message: object) -> Hint | None:
    """None for anything that is not a valid hint: other clients of the broker can write messages, too."""
    if isinstance(message, str):
        message = message.encode(errors="replace")
    if not isinstance(message, bytes) or len(message) > BYTES_MAX:
        return None
    try:
        return _checked(Hint(*_decode(message)))
    except (msgspec.MsgspecError, UnicodeError, Invalid):
        return None


def _checked(hint: Hint) -> Hint | None:
    check_name(hint.queue, "queue")
    if hint.type is not None:
        check_name(hint.type, "job_type")
    fits = -100 <= hint.priority <= 100 and (hint.job is None or is_uuid(hint.job))
    return hint if fits else None
