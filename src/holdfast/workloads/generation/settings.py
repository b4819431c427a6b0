"""The settings of the generation service: `HOLDFAST_GENERATION_*`, or `[generation]` in holdfast.toml."""

import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from holdfast.errors import Invalid
from holdfast.manifest import Secret
from holdfast.signatures import sign
from holdfast.storage import check_shared_storage_url

_URL = r"https?://[^\s/?#]+(/[^\s?#]*)?"


def _about(text: str, **bounds: Any) -> msgspec.Meta:
    return msgspec.Meta(description=text, **bounds)


class Settings(msgspec.Struct):
    provider: Annotated[
        Literal["local", "openai", "poll"], _about("The provider of requests that name none: `local` draws by itself.")
    ] = "local"
    cost: Annotated[int, _about("Credits for one image.", ge=0, le=1_000_000)] = 1
    starting_credits: Annotated[int, _about("Credits that each user starts with.", ge=0, le=10**12)] = 100
    quota_per_day: Annotated[int, _about("Images that a user may request in a day; 0: no limit.", ge=0, le=10**9)] = (
        1000
    )
    quota_per_month: Annotated[
        int, _about("Images that a user may request in a month; 0: no limit.", ge=0, le=10**9)
    ] = 0
    timezone: Annotated[str, _about("Time zone of days and months, such as `Europe/Berlin`.")] = "UTC"
    storage_url: Annotated[
        str,
        _about("Where images are kept: `file:///PATH` or `s3://BUCKET/PREFIX`; empty: a folder in the data directory."),
    ] = ""
    access_key_id: Annotated[str, _about("Access key of the S3 storage; empty: the AWS variables or the role.")] = ""
    secret_access_key: Annotated[Secret, _about("Secret key of the S3 storage.")] = ""
    url_seconds: Annotated[int, _about("Lifetime of the signed URLs of images.", ge=1, le=604_800)] = 3600
    public_url: Annotated[
        str, _about("Address of this server in signed URLs and for webhooks; empty: the `Host` of the request.")
    ] = ""
    blocklist_file: Annotated[
        str, _about("File with words and /patterns/ that prompts must not have, besides the built-in ones.")
    ] = ""
    allowlist_file: Annotated[str, _about("File with phrases that are allowed although they contain such words.")] = ""
    blocked_images_file: Annotated[
        str, _about("File with SHA-256 digests and perceptual hashes of images that must not be shown.")
    ] = ""
    classifier: Annotated[
        str, _about("Classifier of prompts: the name of an installed plug-in, such as `openai`; empty: none.")
    ] = ""
    classifier_url: Annotated[str, _about("Address of the moderation API of the classifier `openai`.")] = ""
    classifier_key: Annotated[Secret, _about("Key of that API.")] = ""
    moderator: Annotated[str, _about("Moderator of images: `rules`, or the name of an installed plug-in.")] = "rules"
    openai_url: Annotated[
        str,
        _about(
            "Base address of an OpenAI-compatible API, such as `https://api.openai.com/v1`: `/images/generations` is "
            "added."
        ),
    ] = ""
    openai_key: Annotated[Secret, _about("Key of that API.")] = ""
    openai_model: Annotated[str, _about("Model of that API.")] = "gpt-image-1"
    openai_cost_micros: Annotated[
        int, _about("What that API charges for an image, in millionths of your currency.", ge=0, le=10**12)
    ] = 0
    poll_url: Annotated[
        str,
        _about(
            "Full address to which predictions are posted, such as "
            "`https://api.replicate.com/v1/models/OWNER/NAME/predictions`: no path is added."
        ),
    ] = ""
    poll_key: Annotated[Secret, _about("Key of that API.")] = ""
    poll_cost_micros: Annotated[
        int, _about("What that API charges for an image, in millionths of your currency.", ge=0, le=10**12)
    ] = 0
    webhook_secret: Annotated[
        Secret, _about("Secret of its webhooks (`whsec_...`, or 16 characters and more); empty: it is only polled.")
    ] = ""
    provider_timeout_seconds: Annotated[float, _about("Longest wait for a response of a provider.", ge=1, le=900)] = 120
    task_timeout_seconds: Annotated[
        float, _about("Longest wait for an image that is polled, in one attempt.", ge=1, le=86_400)
    ] = 900
    max_image_bytes: Annotated[int, _about("Largest image that a provider may return.", ge=1024, le=2**30)] = 33_554_432
    allow_networks: Annotated[
        str, _about("Private networks from which images may be downloaded, such as `10.1.0.0/16, 10.2.0.0/16`.")
    ] = ""

    def __post_init__(self) -> None:
        """Lists and plug-ins are checked only where they are needed, when servers and workers start."""
        for name in ("openai_url", "poll_url", "classifier_url", "public_url"):
            if not re.fullmatch(f"|{_URL}", getattr(self, name)):
                raise ValueError(
                    f"HOLDFAST_GENERATION_{name.upper()} must be empty, or like https://api.example.com/v1"
                )
        if self.provider != "local" and not getattr(self, f"{self.provider}_url"):
            raise ValueError(
                f"HOLDFAST_GENERATION_PROVIDER is {self.provider}: set HOLDFAST_GENERATION_{self.provider.upper()}_URL"
            )
        if self.storage_url:
            try:
                check_shared_storage_url(self.storage_url)
            except Invalid as error:
                raise ValueError(f"HOLDFAST_GENERATION_STORAGE_URL is an {error}") from None
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError(
                "HOLDFAST_GENERATION_ACCESS_KEY_ID and HOLDFAST_GENERATION_SECRET_ACCESS_KEY are set together"
            )
        if self.webhook_secret:
            self._check("webhook_secret", lambda secret: sign(secret, "", 0, b""))
        self._check_addresses()
        self.zone()

    def _check_addresses(self) -> None:
        urls = [name for name in ("openai_url", "poll_url", "classifier_url") if getattr(self, name)]
        if urls or self.networks:
            from holdfast.net import EgressRules  # takes as long as all other imports of a manifest

            for name in urls:
                self._check(name, lambda url: EgressRules(trusted=[url]))
            self._check("allow_networks", lambda _: EgressRules(allow=self.networks))

    def _check(self, name: str, check: Callable[[str], object]) -> None:
        try:
            check(getattr(self, name))
        except Invalid as error:
            raise ValueError(f"HOLDFAST_GENERATION_{name.upper()}: {error.message}") from None

    @property
    def networks(self) -> list[str]:
        return [text.strip() for text in self.allow_networks.split(",") if text.strip()]

    def zone(self) -> tzinfo:
        if self.timezone.upper() == "UTC":
            return UTC
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"HOLDFAST_GENERATION_TIMEZONE {self.timezone!r} is no time zone that is known here, such as "
                "Europe/Berlin"
            ) from None

    @property
    def providers(self) -> tuple[str, ...]:
        """Those that a request may name."""
        return ("local", *(name for name in ("openai", "poll") if getattr(self, f"{name}_url")))
