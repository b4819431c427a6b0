"""Moderation of images: whether one that a provider made may be shown. Plug-ins are entry points of the group
`holdfast.generation.moderators`, each a function that makes a Moderator from the settings.

What a moderator raises is a transient failure to its caller: no image is shown that was not moderated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol, cast

import msgspec

from holdfast.errors import Invalid
from holdfast.workloads.generation.blocked_images import BlockedImages
from holdfast.workloads.generation.image_text import texts
from holdfast.workloads.generation.picture import decoded, dhash
from holdfast.workloads.generation.settings import Settings

GROUP = "holdfast.generation.moderators"


class ModeratedImage(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    content_type: str
    width: int
    height: int
    sha256: str
    prompt: str


class ImageVerdict(msgspec.Struct, frozen=True):
    allowed: bool
    category: str = ""


ALLOWED = ImageVerdict(True)


class Moderator(Protocol):
    async def moderate(self, image: ModeratedImage) -> ImageVerdict: ...


class RulesModerator:
    """The list of blocked images, and text in metadata. An image of a single color is allowed: users ask for such,
    and a rejection costs them their credits.

    `refuses` gives the category of a text that is not allowed, or None."""

    def __init__(self, blocked: BlockedImages, refuses: Callable[..., str | None]) -> None:
        self._blocked, self._refuses = blocked, refuses

    async def moderate(self, image: ModeratedImage) -> ImageVerdict:
        category = await asyncio.to_thread(self._category, image)
        return ALLOWED if category is None else ImageVerdict(False, category)

    def _category(self, moderated: ModeratedImage) -> str | None:
        image = decoded(moderated.data)
        if self._blocked.matches(moderated.sha256, dhash(image)):
            return "blocked_image"
        return next((found for text in texts(image) if (found := self._refuses(text))), None)


def load_moderator(
    settings: Settings, *, refuses: Callable[..., str | None], monotonic: Callable[[], float]
) -> Moderator:
    if settings.moderator == "rules":
        return RulesModerator(BlockedImages(settings.blocked_images_file, monotonic), refuses)
    installed = {each.name: each for each in entry_points(group=GROUP)}
    if settings.moderator not in installed:
        names = ", ".join(["rules", *sorted(installed)])
        raise Invalid(f"there is no moderator {settings.moderator!r}; installed: {names}")
    return cast(Moderator, installed[settings.moderator].load()(settings))
