"""What a database says when it refuses, in our words."""

from __future__ import annotations

from holdfast.errors import Conflict, HoldfastError, IllegalMove, SchemaStale, StoreError


def refusal(code: str, message: str) -> HoldfastError | None:
    """The error behind a refusal of ours (HF001, HF002) or of a constraint; None when it is not about the data."""
    if code == "HF001":
        return IllegalMove(message)
    if code == "HF002":
        return Conflict(message, code="append_only")
    if code == "missing_table":
        return SchemaStale(f"the database has no Holdfast schema, or an old one ({message}); run `holdfast migrate`")
    if "events_actor" in message:
        return IllegalMove("this actor may not make this move", code="actor_not_allowed")
    if code == "constraint":
        return StoreError(f"the database refused the row: {message}", code="constraint_violated")
    return None
