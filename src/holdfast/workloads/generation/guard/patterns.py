r"""Regular expressions of operators. They run on the event loop: those that may take exponential time are refused.

These are repeated groups that can match the same text in several ways: `(a|a)+`, `(a+)+`, `(aa?)+`. The check does not
compare the ways: no alternative and no repetition is allowed in a repeated group. Several repetitions one after the
other, such as `.*a.*b.*c`, are allowed: their time is polynomial, and a text has at most 4000 characters.
"""

from __future__ import annotations

import re

from holdfast.errors import Invalid

_ESCAPE_CLASS_OR_COMMENT = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<comment>\(\?#[^)]*\))", re.DOTALL)
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")
_REPEAT = r"[*+?]|\{(?:\d+|\d*,\d*)\}"
_ONCE = re.compile(r"\?|\{(?:\d*,)?0*[01]\}")
_INNERMOST = re.compile(rf"\((?P<inside>[^()]*)\)(?P<repeat>{_REPEAT})?")
_SEVERAL_WAYS = re.compile(rf"\||{_REPEAT}")


def compiled(pattern: str) -> re.Pattern[str]:
    """For normalised text. Raises `Invalid`; the message does not repeat the pattern."""
    try:
        result = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise Invalid(f"the pattern is invalid: {error}") from None
    _check_repeated_groups(_ESCAPE_CLASS_OR_COMMENT.sub(lambda found: "" if found["comment"] else "x", pattern))
    if result.search(""):
        raise Invalid("the pattern matches the empty text")
    return result


def _check_repeated_groups(pattern: str) -> None:
    """Replaces the innermost groups, until there are none."""
    if _VERBOSE.search(pattern):
        pattern = "".join(pattern.split())
    while (replaced := _INNERMOST.sub(_as_one, pattern)) != pattern:
        pattern = replaced


def _as_one(group: re.Match[str]) -> str:
    inside, repeat = group["inside"].removeprefix("?"), group["repeat"]  # (?:...), (?i:...), (?P<name>...)
    has_several_ways = _SEVERAL_WAYS.search(inside)
    if has_several_ways and repeat and not _ONCE.fullmatch(repeat):
        raise Invalid(
            "the pattern repeats a group that has an alternative or a repetition, such as (a|b)+ or (a+)+: it may "
            r"take exponential time. Write [ab]+ for single characters, and [\s\S]* or .{0,100} for any text"
        )
    return "x*" if has_several_ways or repeat else "x"
