"""A new key goes to the terminal, or into a file that only its owner can read."""

from __future__ import annotations

import argparse
import os

from holdfast.errors import Invalid


def add_key_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key-file", metavar="PATH", help="write the key into this new file, for its owner only, and show it nowhere"
    )


def handed_over(text: str, path: str | None) -> dict[str, str]:
    """Into a file, if one was named; else to be printed, under the name that it has in JSON."""
    if path is None:
        return {"apiKey": text}
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"{text}\n")
    return {}


def refuse_taken(path: str | None) -> None:
    """Before a key is made that would then have nowhere to go."""
    folder = os.path.dirname(path or "") or "."
    if path is not None and (os.path.lexists(path) or not os.access(folder, os.W_OK)):
        raise Invalid(f"cannot write the key: {path} is there already, or {folder} cannot be written to")
