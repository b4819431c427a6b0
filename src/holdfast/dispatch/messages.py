"""A hint as it travels: a few bytes of JSON, alike in every broker. What comes back may be anything, and is checked."""

from __future__ import annotations

import msgspec

from holdfast.errors import Invalid
from holdfast.ids import is_uuid
from holdfast.model.hint import Hint
from holdfast.model.names import check_name

BYTES_MAX = 1024  # every queue's name fits, with the job's id
LEVELS = ("high", "normal", "low")  # of priorities, the most urgent first

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str | None, str | None, int]).decode


def level_of(hint: Hint) -> str:
    return "high" if hint.priority > 0 else "low" if hint.priority < 0 else "normal"


def written(hint: Hint) -> bytes:
    """`["mail","SEND_EMAIL","0198...",0]`. A name too long to go along is left out: then any type may be meant."""
    message = _encode(hint)
    return message if len(message) <= BYTES_MAX else _encode(hint._replace(type=None))


def read(message: object) -> Hint | None:
    """None for what is no hint of ours. Somebody may have put it there on purpose (SEC-23)."""
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
