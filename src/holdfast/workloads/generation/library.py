"""How the library is searched: the words of a prompt, without case and accents."""

from __future__ import annotations

import unicodedata


def search_text(text: str) -> str:
    """`Café  Crème` becomes `cafe creme`."""
    plain = unicodedata.normalize("NFKD", text).casefold()
    return " ".join("".join(char for char in plain if not unicodedata.combining(char)).split())


def like_pattern(query: str) -> str:
    """For `LIKE ... ESCAPE '!'`: contains the words, in this order."""
    words = [word.replace("!", "!!").replace("%", "!%").replace("_", "!_") for word in search_text(query).split()]
    return f"%{'%'.join(words)}%" if words else ""
