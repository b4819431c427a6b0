"""What a job of this service is asked for: its payload, with the defaults of the settings."""

from __future__ import annotations

import re
from typing import Any
from zlib import crc32

import msgspec

from holdfast.errors import InvalidField
from holdfast.workloads.generation.extension import ext
from holdfast.workloads.generation.providers.base import whole_prompt

SIDE_MIN, SIDE_MAX, SIDE = 64, 2048, 1024
COUNT_MAX = 4
PROMPT_CHARS_MAX, STYLE_CHARS_MAX = 4000, 100
SEED_MAX = 2**32 - 1
USER_CHARS_MAX = 200
TEXT_ALONE = ("openai",)  # providers that have no field for a negative prompt
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Wanted(msgspec.Struct, frozen=True):
    user: str
    prompt: str
    negative_prompt: str | None = None
    width: int = SIDE
    height: int = SIDE
    count: int = 1
    seed: int | None = None
    style: str | None = None
    provider: str | None = None

    @classmethod
    def of(cls, payload: dict[str, Any]) -> Wanted:
        """Raises `InvalidField`: also for jobs that a client creates by `POST /jobs`."""
        try:
            wanted = cls.stored(payload)
        except msgspec.ValidationError as error:
            raise InvalidField(f"invalid payload: {error}", field="payload") from None
        wanted.check()
        return wanted if wanted.provider else msgspec.structs.replace(wanted, provider=ext.settings.provider)

    @classmethod
    def stored(cls, payload: dict[str, Any]) -> Wanted:
        """Of a job that was created, perhaps under other settings."""
        return msgspec.convert(payload, cls)

    def check(self) -> None:
        check_text("prompt", self.prompt, PROMPT_CHARS_MAX)
        if not self.prompt.strip():
            raise InvalidField("the prompt is empty: say what the image should show", field="prompt")
        check_text("negative_prompt", self.negative_prompt or "", PROMPT_CHARS_MAX)
        check_text("style", self.style or "", STYLE_CHARS_MAX)
        check_text("user", self.user, USER_CHARS_MAX)
        if not self.user:
            raise InvalidField("the user is empty", field="user")
        _check_number("width", self.width, SIDE_MIN, SIDE_MAX)
        _check_number("height", self.height, SIDE_MIN, SIDE_MAX)
        _check_number("count", self.count, 1, COUNT_MAX)
        if self.seed is not None:
            _check_number("seed", self.seed, 0, SEED_MAX)
        known = ext.settings.providers
        if self.provider is not None and self.provider not in known:
            raise InvalidField(
                f"provider {self.provider[:80]!r} is not configured here; there is {', '.join(known)}", field="provider"
            )

    @property
    def guarded_text(self) -> str:
        """What the guard and the classifier see. A negative prompt names what the image must not show, unless the
        provider gets it as a part of the prompt."""
        provider = self.provider or ext.settings.provider
        negative = self.negative_prompt if provider in TEXT_ALONE else None
        return whole_prompt(self.prompt, self.style, negative)

    @property
    def request(self) -> list[Any]:
        """What makes two requests of a user the same. White space and Unicode normalization do not."""
        params = {"size": [self.width, self.height], "count": self.count, "seed": self.seed, "style": self.style}
        return [self.prompt, {**params, "negative": self.negative_prompt, "provider": self.provider}]

    def seed_for(self, job_id: str) -> int:
        """The same in every process, and as good as random: the ids of jobs are."""
        if self.seed is not None:
            return self.seed
        return crc32(job_id.encode()) % 2**31


def check_storable(payload: dict[str, Any]) -> None:
    """Before the job is made, whose errors are about its payload."""
    for field, value in payload.items():
        if isinstance(value, str) and "\0" in value:
            raise _not_storable(field)


def _not_storable(field: str) -> InvalidField:
    return InvalidField(f"{field} has characters that cannot be stored", field=field)


def check_text(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidField(f"{field} has {len(text)} characters; at most {most} are allowed", field=field)
    if _UNSTORABLE.search(text):
        raise _not_storable(field)


def _check_number(field: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise InvalidField(f"{field} is {number}; it must be {least} to {most}", field=field)
