"""API keys: their format, kinds and scopes. Only a digest of the secret is stored."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from holdfast.errors import Invalid, InvalidField, UnknownName
from holdfast.model.json import decode
from holdfast.model.names import check_name, check_names

ID_BITS, SECRET_BITS = 64, 256
RATE_MAX = 1_000_000


class Scope(StrEnum):
    """What a key may do. Defaults: the first three for client keys, `work` for worker keys."""

    JOBS_CREATE = "jobs:create"
    JOBS_READ = "jobs:read"
    JOBS_CANCEL = "jobs:cancel"
    WORK = "work"
    ADMIN_READ = "admin:read"
    ADMIN_PAYLOAD = "admin:payload"
    ADMIN_OPERATE = "admin:operate"
    ADMIN_KEYS = "admin:keys"
    ADMIN_WEBHOOKS = "admin:webhooks"


class Kind(StrEnum):
    CLIENT = "client"
    WORKER = "worker"
    ADMIN = "admin"


SCOPES = {
    Kind.CLIENT: (Scope.JOBS_CREATE, Scope.JOBS_READ, Scope.JOBS_CANCEL),
    Kind.WORKER: (Scope.WORK,),
    Kind.ADMIN: (Scope.ADMIN_READ, Scope.ADMIN_PAYLOAD, Scope.ADMIN_OPERATE, Scope.ADMIN_KEYS, Scope.ADMIN_WEBHOOKS),
}
# By default, admin keys may only read.
_UNLESS_TOLD = {**SCOPES, Kind.ADMIN: (Scope.ADMIN_READ,)}

# Scopes of extensions are `NAME:verb`; a key can be created without the extension.
EXTENDED = (Kind.CLIENT, Kind.ADMIN)  # the kinds of key that may have them
# Not allowed as extension names, so that a misspelt core scope is not taken for one of an extension.
RESERVED = frozenset(
    ("admin", "admins", "holdfast", "job", "jobs", "key", "keys", "session", "sessions", "work", "worker", "workers")
)
_EXTENSION_SCOPE = re.compile(r"([a-z][a-z0-9_]{0,30}):[a-z][a-z0-9_]{0,30}")


def extension_of(scope: str) -> str | None:
    """The extension of a scope; None for a scope of the core."""
    found = _EXTENSION_SCOPE.fullmatch(scope)
    return None if found is None or found[1] in RESERVED else found[1]


# -- key format ------------------------------------------------------------------------------------------------

_ID = re.compile(r"[0-9a-f]{16}")
_FORM = re.compile(rb"(holdfast_(client|worker|admin)_([0-9a-f]{16})_([0-9a-f]{64}))_([0-9a-f]{8})")


class KeyText(NamedTuple):
    """A parsed key."""

    kind: Kind
    id: str
    secret: bytes


def is_key_id(text: object) -> bool:
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def text_of(kind: Kind, key_id: str, secret: str) -> str:
    """`holdfast_<kind>_<id>_<secret>_<checksum>`: secret scanners recognize the prefix."""
    shown = f"holdfast_{kind}_{key_id}_{secret}"
    return f"{shown}_{crc32(shown.encode()):08x}"


def parse(text: bytes) -> KeyText | None:
    """None for malformed keys: the checksum finds typing errors without a query."""
    found = _FORM.fullmatch(text)
    if found is None or crc32(found[1]) != int(found[5], 16):
        return None
    return KeyText(Kind(found[2].decode()), found[3].decode(), found[4])


def digest_of(secret: bytes) -> str:
    """A fast hash is sufficient for 256 random bits."""
    return sha256(secret).hexdigest()


# -- records --------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True):
    """A stored key without its secret."""

    id: str
    kind: Kind
    tenant: str
    name: str | None
    subject: str | None  # the user of the key
    scopes: frozenset[str]  # core scopes are `Scope` members
    queues: tuple[str, ...] | None  # a worker key may be bound to these
    worker_id: str | None
    rate_per_second: float | None
    expires_in: float | None  # seconds from creation
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None

    @classmethod
    def from_row(cls, row: Any) -> Key:
        values = {name: row[name] for name in KEY_COLUMNS}
        values["kind"] = Kind(values["kind"])
        values["scopes"], values["queues"] = _scopes_and_queues(decode(values["scopes"]))
        return cls(**values)

    @property
    def rights(self) -> dict[str, Any]:
        """What it opens, and to whom."""
        named = {"kind": self.kind, "tenant": self.tenant, "name": self.name, "scopes": sorted(self.scopes)}
        return {**named, "queues": self.queues, "worker": self.worker_id, "subject": self.subject}

    def status(self, now: datetime) -> str:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "live"


KEY_COLUMNS = tuple(name for name in Key.__struct_fields__ if name != "queues")


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to create. A worker key belongs to one worker and may be bound to queues."""

    kind: Kind = Kind.CLIENT
    tenant: str = "default"
    name: str | None = None
    subject: str | None = None
    scopes: Collection[str] | None = None
    queues: Collection[str] | None = None
    worker_id: str | None = None
    expires_in: float | None = None  # seconds
    rate_per_second: float | None = None

    def check(self) -> None:
        check_name(self.tenant, "tenant")
        if self.name is not None:
            check_name(self.name, "name")
        if self.subject is not None:
            check_name(self.subject, "subject")
        if (self.kind is Kind.WORKER) is not (self.worker_id is not None):
            raise InvalidField("a worker key needs a worker_id, and other keys must not have one", field="worker_id")
        if self.queues is not None and (self.kind is not Kind.WORKER or not self.queues):
            raise InvalidField("only a worker key can be bound to queues, and to at least one", field="queues")
        for number, most, field in (
            (self.expires_in, 10**9, "expires_in_seconds"),
            (self.rate_per_second, RATE_MAX, "rate_per_second"),
        ):
            if number is not None and not (type(number) in (int, float) and 0 < number <= most):
                raise InvalidField(f"{field} must be a number above 0 and up to {most:,}", field=field)
        self.stored_scopes()

    def stored_scopes(self) -> list[str]:
        """As stored: `work:mail` is the scope `work` bound to the queue mail."""
        granted = _granted(self.kind, self.scopes)
        if self.queues is None:
            return [str(scope) for scope in sorted(granted)]
        return [f"{Scope.WORK}:{queue}" for queue in check_names(list(self.queues), "queues")]


def _granted(kind: Kind, wanted: Collection[str] | None) -> set[str]:
    if wanted is None:
        return set(_UNLESS_TOLD[kind])
    granted = {_scope(name) for name in wanted}
    if foreign := [
        scope for scope in sorted(granted.difference(SCOPES[kind])) if kind not in EXTENDED or isinstance(scope, Scope)
    ]:
        extensions = ", and those of extensions (NAME:verb)" if kind in EXTENDED else ""
        raise Invalid(
            f"a {kind} key cannot have {', '.join(foreign)}; it may have: {', '.join(SCOPES[kind])}{extensions}",
            code="invalid_scope",
        )
    if not granted:
        raise Invalid("a key needs at least one scope; leave scopes out for the defaults", code="invalid_scope")
    return granted


def _scope(name: str) -> str:
    try:
        return Scope(name)
    except ValueError:
        if isinstance(name, str) and extension_of(name) is not None:
            return name
        raise UnknownName.of("scope", str(name), [scope.value for scope in Scope]) from None


def check_against(scopes: Collection[str], known: Mapping[str, Collection[str]]) -> list[str]:
    """Raise for an undeclared scope of a known extension; returns the scopes of unknown extensions.

    `known`: the scopes of each extension. One that is not here may be elsewhere: a key for it can be made all the same.
    """
    strange = []
    for scope in sorted(scopes):
        extension = extension_of(scope)
        if extension is None:
            continue
        if extension not in known:
            strange.append(scope)
        elif scope not in known[extension]:
            raise UnknownName.of("scope", scope, sorted(known[extension]), where=f"the extension {extension}")
    return strange


def _scopes_and_queues(stored: list[str]) -> tuple[frozenset[str], tuple[str, ...] | None]:
    bound = f"{Scope.WORK}:"
    queues = tuple(name.removeprefix(bound) for name in stored if name.startswith(bound))
    scopes = frozenset(Scope.WORK if name.startswith(bound) else name for name in stored)
    return scopes, queues or None
