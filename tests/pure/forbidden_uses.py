"""Finds uses of time, randomness, the environment and SQL in the text of a module."""

import ast
import re
from collections.abc import Iterator

TIME_AND_CHANCE = (
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
    *("time.time", "time.time_ns", "time.sleep", "asyncio.sleep"),
    *("random", "secrets", "uuid.uuid1", "uuid.uuid4", "os.urandom"),
)
ENVIRONMENT = ("os.environ", "os.getenv", "os.environb", "os.putenv")
SQL = re.compile(
    r"\s*(SELECT\s.+?\sFROM\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|(CREATE|ALTER|DROP)\s+(TABLE|INDEX|TRIGGER)\b"
    r"|WITH\s+\w+\s+AS\b|PRAGMA\s|(BEGIN|COMMIT|ROLLBACK)\s*;?\s*$)",
    re.DOTALL,
)


def names_used(source: str) -> Iterator[tuple[int, str]]:
    """(line, full dotted name) of everything imported or reached through an import, whatever it is called here."""
    tree = ast.parse(source)
    meaning: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                meaning[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = [node.attr]
            inner = node.value
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in meaning:
                yield node.lineno, ".".join([meaning[inner.id], *reversed(parts)])


def forbidden(source: str, names: tuple[str, ...]) -> list[tuple[int, str]]:
    return sorted(
        {(line, used) for line, used in names_used(source) if any(f"{used}.".startswith(f"{name}.") for name in names)}
    )


def sql_in(source: str) -> list[tuple[int, str]]:
    """Strings that are SQL; what documents a function is not."""
    tree = ast.parse(source)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [(node.lineno, node.value[:60]) for node in texts if SQL.match(node.value)]
