"""What a database says when it refuses, in our words."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from holdfast.errors import Conflict, HoldfastError, IllegalMove, RowRefused, SchemaStale, StoreUnavailable


class Named(NamedTuple):
    """A database as messages name it, without its password, and the command that migrates it."""

    database: str = "the database"
    migrate: str = "holdfast migrate"

    @property
    def short(self) -> str:
        """Without user, host and options, for those who may not know them."""
        name = urlsplit(self.database).path.rpartition("/")[2]
        return f"the database {name}" if "://" in self.database and name else "the database"


UNNAMED = Named()


def refusal(code: str, message: str, named: Named = UNNAMED) -> HoldfastError | None:
    """The error behind a refusal of ours (HF001, HF002) or of a constraint; None when it is not about the data.

    The server sends these messages to its clients, so they do not contain the user, host or options of the database.
    """
    if code == "HF001":
        return IllegalMove(message)
    if code == "HF002":
        return Conflict(message, code="append_only")
    if code == "missing_table":
        return SchemaStale(f"{named.short} has no Holdfast schema, or an old one ({message}); run `holdfast migrate`")
    if "events_actor" in message:
        return IllegalMove("this actor may not make this move", code="actor_not_allowed")
    if code == "constraint":
        return RowRefused(f"the database refused the row: {message}")
    if code == "value":
        return RowRefused(f"the database cannot store a value of the row: {message}", code="value_refused")
    return None


def unreachable(url: str, error: BaseException) -> StoreUnavailable:
    """A server that could not be connected to: which one, why, and what to look at. Never its password."""
    why = f"{error}" or "it did not answer in time"
    return StoreUnavailable(
        f"cannot connect to PostgreSQL{_place(url)}: {why}; is the server up, and is the database URL right?"
    )


def _place(url: str) -> str:
    """Host and port as the driver reads them; nothing where it reads a part of the password as one of them."""
    parts = urlsplit(url)
    _, at, hosts = parts.netloc.rpartition("@")
    if not at and "@" in url:
        return ""
    query = parse_qs(parts.query)
    host, port = (query.get(name, [""])[0] for name in ("host", "port"))
    found = hosts or f"{host}{':' if port else ''}{port}"
    return f" at {found}" if found else ""
