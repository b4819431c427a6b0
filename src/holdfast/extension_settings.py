"""The settings of one extension: a struct whose fields are environment variables, or keys in `holdfast.toml`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import NODEFAULT, inspect

from holdfast.errors import Invalid, UnknownName
from holdfast.redaction import HIDDEN

PREFIX = "HOLDFAST_"
FILE = "holdfast.toml"
OFF = "off"
GROUP = "holdfast.extensions"  # the entry points of installed extensions
# The type of a setting that is never shown. It can also be given as NAME_FILE, the path of a file with the value.
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]

_SCALAR = (inspect.StrType, inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.LiteralType, inspect.EnumType)


class ShownSetting(NamedTuple):
    """A setting without secrets, and where its value comes from."""

    name: str
    value: Any
    origin: str
    variable: str


class SettingField:
    """One setting of an extension."""

    def __init__(self, extension: str, field: msgspec.structs.FieldInfo) -> None:
        self.name, self._annotation = field.name, field.type
        self.full_name = f"{extension}.{self.name}"
        self.variable = f"{PREFIX}{extension}_{self.name}".upper()
        self.default = field.default if field.default_factory is NODEFAULT else field.default_factory()
        about = list(_with_parts(inspect.type_info(field.type)))
        notes = [each for each in about if isinstance(each, inspect.Metadata)]
        self.secret = any((each.extra or {}).get("secret") is True for each in notes)
        self.meaning = next(filter(None, map(_description, notes)), "")
        self.types = [each for each in about if not isinstance(each, inspect.Metadata | inspect.UnionType)]
        self.may_be_off = any(isinstance(each, inspect.NoneType) for each in self.types)

    @property
    def allowed(self) -> str:
        """For messages and tables: `a whole number, 1 or more`."""
        return " or ".join(OFF if isinstance(each, inspect.NoneType) else _described(each) for each in self.types)

    def read(self, value: Any, typed: str) -> Any:
        """The value, converted to its type. `typed` is the setting as it was written, for messages."""
        try:
            read = None if value == OFF and self.may_be_off else msgspec.convert(value, self._annotation, strict=False)
            if not (isinstance(read, float) and not math.isfinite(read)):
                return read
        except ValueError:  # another type, or bytes that are not text
            pass
        got = "" if self.secret else f", got {value!r:.80}"
        raise Invalid(f"{typed} must be {self.allowed}{got}", code="invalid_setting")

    def shown(self, value: Any) -> Any:
        return (HIDDEN if value else "") if self.secret else None if value is NODEFAULT else msgspec.to_builtins(value)


@dataclass(frozen=True)
class SettingsSection:
    """`[name]` in the file and `HOLDFAST_NAME_` in the environment."""

    extension: str
    struct: type[msgspec.Struct]
    by_app: bool = False  # the app assigns them: environment and file are not read

    def __post_init__(self) -> None:
        if not (isinstance(self.struct, type) and issubclass(self.struct, msgspec.Struct)):
            raise self._invalid(f"settings is a subclass of msgspec.Struct, got {self.struct!r:.80}")
        for each in self.fields.values():
            if not all(isinstance(kind, (*_SCALAR, inspect.NoneType)) for kind in each.types):
                raise self._invalid(f"setting {each.name!r} must be text, a number, a boolean or a literal")
            if each.secret and f"{each.name}_file" in self.fields:
                raise self._invalid(f"setting {each.name}_file is how the secret {each.name!r} is given as a file")

    def _invalid(self, what: str) -> Invalid:
        return Invalid(f"extension {self.extension!r}: {what}", code="invalid_extension")

    @cached_property
    def fields(self) -> dict[str, SettingField]:
        try:
            return {each.name: SettingField(self.extension, each) for each in msgspec.structs.fields(self.struct)}
        except (TypeError, NameError) as error:
            raise self._invalid(f"its settings have a type that cannot be read: {error}") from None

    @cached_property
    def variables(self) -> dict[str, SettingField]:
        """Every environment variable that can set them."""
        files = {f"{each.variable}_FILE": each for each in self.fields.values() if each.secret}
        return {**{each.variable: each for each in self.fields.values()}, **files}

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self, environment: Mapping[str, str], table: Any) -> Any:
        """The typed settings: the environment over the table of the file over the defaults."""
        given = self._given(environment, table)
        for each in self.fields.values():
            if each.name not in given and each.default is NODEFAULT:
                raise Invalid(
                    f"extension {self.extension!r} needs {each.variable}: {each.allowed}", code="invalid_setting"
                )
        try:
            return self.struct(**{name: value for name, (value, _) in given.items()})
        except (ValueError, TypeError) as error:  # each value is valid: a rule of the struct itself
            raise Invalid(f"settings of extension {self.extension!r}: {error}", code="invalid_setting") from None

    def _given(self, environment: Mapping[str, str], table: Any) -> dict[str, tuple[Any, str]]:
        """The value of each field that is set, and where."""
        found = {}
        for name, value in self.check_table(table).items():
            found[name] = self.fields[name].read(value, f"{name} in [{self.extension}] of {FILE}"), FILE
        for variable, each in self.variables.items():
            if value := environment.get(variable, ""):
                value = value if variable == each.variable else secret_in(variable, Path(value))
                found[each.name] = each.read(value, variable), "environment"
        return found

    def check_table(self, table: Any) -> Mapping[str, Any]:
        """The table `[name]` of the file; an unknown key is an error."""
        if not isinstance(table, Mapping):
            raise Invalid(f"{self.extension} in {FILE} must be a table: [{self.extension}]", code="invalid_setting")
        for name in table:
            if name not in self.fields:
                raise UnknownName.of("setting", name, [*self.fields], where=f"[{self.extension}] of {FILE}")
        return table

    # -- showing ----------------------------------------------------------------------------------------------

    def shown(
        self, environment: Mapping[str, str], table: Any, by_app: msgspec.Struct | None = None
    ) -> list[ShownSetting]:
        """Each effective setting, and where it comes from. `by_app`: as the app has assigned them."""
        if by_app is not None:
            given = {name: (getattr(by_app, name), "app") for name in self.fields}
        else:
            given = self._given(environment, table)
        rows = []
        for name, each in self.fields.items():
            value, origin = given.get(name, (each.default, "default"))
            rows.append(ShownSetting(each.full_name, each.shown(value), origin, each.variable))
        return rows

    def secrets_in(self, settings: msgspec.Struct) -> list[str]:
        """Values that must never be shown."""
        return [getattr(settings, each.name) or "" for each in self.fields.values() if each.secret]

    def documented(self) -> str:
        """A Markdown table for the documentation."""
        cells = [(f"`{each.variable}`", _default(each), each.allowed, _told(each)) for each in self.fields.values()]
        rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells]
        return "\n".join(["| setting | default | allowed | meaning |", "|---|---|---|---|", *rows]) + "\n"


# -- installed extensions ---------------------------------------------------------------------------------------


def installed(names: Iterable[str] | None = None) -> list[Any]:
    """The manifests of installed extensions, or of those with these names."""
    wanted = None if names is None else set(names)
    return [_manifest(each) for each in _entry_points() if wanted is None or each.name in wanted]


def installed_names() -> list[str]:
    return [each.name for each in _entry_points()]


def _entry_points() -> tuple[Any, ...]:
    return _entry_points_on(tuple(sys.path))


@cache
def _entry_points_on(_path: tuple[str, ...]) -> tuple[Any, ...]:
    """Reading those of all distributions takes milliseconds, and importing this module as long: once, where needed."""
    from importlib.metadata import entry_points

    return tuple(sorted(entry_points(group=GROUP), key=lambda each: each.name))


@cache
def _manifest(entry: Any) -> Any:
    try:
        found = entry.load()
    except Exception as error:
        raise Invalid(
            f"the manifest of extension {entry.name!r} ({entry.value}) cannot be imported: "
            f"{type(error).__name__}: {error}",
            code="invalid_extension",
        ) from error
    if getattr(found, "name", None) != entry.name or not isinstance(
        getattr(found, "section", ""), SettingsSection | None
    ):
        raise Invalid(
            f"{entry.value} is not the holdfast.extend.Manifest of extension {entry.name!r}", code="invalid_extension"
        )
    return found


def secret_in(variable: str, path: Path) -> str:
    """The content of a file that an environment variable names."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Invalid(f"{variable}: cannot read {path}: {error.strerror}", code="invalid_setting") from None
    except UnicodeDecodeError:
        raise Invalid(f"{variable}: {path} is not text", code="invalid_setting") from None


# -- types in words ---------------------------------------------------------------------------------------------


def _with_parts(kind: inspect.Type) -> Iterable[inspect.Type]:
    yield kind
    if isinstance(kind, inspect.Metadata):
        yield from _with_parts(kind.type)
    for each in kind.types if isinstance(kind, inspect.UnionType) else ():
        yield from _with_parts(each)


def _description(note: inspect.Metadata) -> str:
    return str((note.extra_json_schema or {}).get("description", ""))


def _described(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            word = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            return ", ".join([word, *_range(kind)])
        case inspect.StrType():
            return " ".join(["text", *_length(kind)])
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return " or ".join(map(str, kind.values))
        case inspect.EnumType():
            return " or ".join(str(each.value) for each in kind.cls)
    return "a value"


def _range(kind: inspect.IntType | inspect.FloatType) -> list[str]:
    if kind.ge is not None and kind.le is not None:
        said = [f"from {kind.ge:,} to {kind.le:,}"]
    else:
        said = [] if kind.ge is None else [f"{kind.ge:,} or more"]
        said += [] if kind.le is None else [f"{kind.le:,} or less"]
    said += [] if kind.gt is None else [f"more than {kind.gt:,}"]
    said += [] if kind.lt is None else [f"less than {kind.lt:,}"]
    return said + ([] if kind.multiple_of is None else [f"a multiple of {kind.multiple_of:,}"])


def _length(kind: inspect.StrType) -> list[str]:
    said = [] if kind.min_length is None else [f"of at least {kind.min_length:,} characters"]
    said += [] if kind.max_length is None else [f"of at most {kind.max_length:,} characters"]
    return said + ([] if kind.pattern is None else [f"that matches `{kind.pattern}`"])


def _default(field: SettingField) -> str:
    match field.default:
        case value if value is NODEFAULT:
            return "must be given"
        case None:
            return OFF
        case "":
            return "empty"
        case bool() as value:
            return f"`{value}`".lower()
    return f"`{msgspec.to_builtins(field.default)}`"


def _told(field: SettingField) -> str:
    return " ".join(filter(None, [field.meaning, "A secret." if field.secret else ""]))
