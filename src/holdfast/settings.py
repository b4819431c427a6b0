"""All settings. The command line overrides the environment, which overrides `holdfast.toml` and the defaults below."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import unquote

import msgspec

from holdfast.errors import HoldfastError, Invalid, UnknownName
from holdfast.extension_settings import (
    FILE,
    OFF,
    PREFIX,
    SettingsSection,
    ShownSetting,
    installed,
    installed_names,
    secret_in,
)
from holdfast.lifecycle.settings import by_lifecycle, flat, flattened, names_like, setting_like
from holdfast.redaction import HIDDEN, passwords_in, without_password

# Ignored: variables of the test suite, and those that Kubernetes sets for a service called holdfast.
_IGNORED = ("HOLDFAST_TEST_", "HOLDFAST_SERVICE_", "HOLDFAST_PORT")
# Never shown. They can also be given as NAME_FILE, the path of a file with the value.
SECRET = ("database_url", "redis_url", "nats_url", "admin_secret", "worker_key", "alert_webhook_url")
# Options in URLs for SQLAlchemy or its drivers; PostgreSQL would reject them.
_SQLALCHEMY_OPTIONS = ("async_fallback", "prepared_statement_cache_size", "prepared_statement_name_func")
# On the command line.
_OPTIONS = {"database_url": "the database URL", "concurrency": "--concurrency"}


def _range(least: float, most: float = 10**9 - 1) -> msgspec.Meta:
    """The minimum and maximum of a number, which `load` checks."""
    return msgspec.Meta(extra={"range": (least, most)})


Positive = Annotated[float, _range(0.001)]
NonNegative = Annotated[float, _range(0)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`lease_seconds` here is `HOLDFAST_LEASE_SECONDS` in the environment and `lease_seconds` in the file."""

    app: str = ""
    database_url: str = ""
    data_dir: str = ".holdfast"

    lease_seconds: Positive = 30
    heartbeat_seconds: Positive = 10
    max_attempts: Annotated[int, _range(1, 1000)] = 5
    backoff_base: NonNegative = 2
    backoff_factor: Annotated[float, _range(0.001, 1000)] = 2
    backoff_cap: Positive = 600
    backoff_jitter: Annotated[float, _range(0, 1)] = 1
    no_progress_seconds: Positive | None = None
    max_runtime_seconds: Positive | None = None
    keep_completed_parts: bool = True
    discard_partial_parts: bool = False
    idempotency_ttl: Annotated[float, _range(86_400)] = 86_400

    concurrency: Annotated[int, _range(1, 1000)] = 10
    stop_grace_seconds: NonNegative = 25
    timeout_grace_seconds: NonNegative = 0
    watchdog_seconds: NonNegative = 300
    child_processes_max: Annotated[int, _range(0, 1000)] = 0
    child_idle_seconds: NonNegative = 60
    child_jobs_max: Annotated[int, _range(1)] | None = None
    child_memory_max_mb: Annotated[int, _range(1)] | None = None

    worker_offline_seconds: Positive = 90
    sweep_seconds: Positive = 10
    startup_grace_seconds: NonNegative = 120
    accept_orphans_seconds: NonNegative = 60

    retain_succeeded_seconds: NonNegative | None = 1_209_600
    retain_dead_seconds: NonNegative | None = None
    retain_canceled_seconds: NonNegative | None = None
    retain_rejected_seconds: NonNegative | None = None
    retain_attempts_seconds: NonNegative | None = None

    error_max_chars: Annotated[int, _range(100, 100_000)] = 4000
    worker_json_max_bytes: Annotated[int, _range(100, 1_048_576)] = 10_240
    hook_timeout_seconds: Annotated[float, _range(0.1, 25)] = 10
    priority_ageing_seconds: Annotated[float, _range(0.1, 86_400)] | None = None

    dispatch: Literal["database", "redis", "hybrid", "sqs", "nats"] = "database"
    poll_seconds: Annotated[float, _range(0.05, 60)] = 1.5
    redis_url: str = ""
    redis_pool_size: Annotated[int, _range(2, 1000)] = 10
    redis_cache_seconds: Annotated[float, _range(0, 3600)] = 0
    redis_channel_prefix: str = ""
    nats_url: str = ""
    sqs_queue: str = "holdfast"
    sqs_endpoint_url: str = ""

    log_format: Literal["auto", "json", "text"] = "auto"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_jobs: bool = True
    traces: bool = False
    traces_per_second: Positive = 100

    unknown_job_types: Literal["auto", "accept", "refuse"] = "auto"
    admin_secret: str = ""
    worker_key: str = ""
    rate_per_second: Positive | None = None
    session_seconds: Annotated[float, _range(60, 2_592_000)] = 43_200
    behind_tls: bool = False
    sse_heartbeat_seconds: Positive = 30
    sse_retry_seconds: Positive = 3
    sse_streams_max: Annotated[int, _range(1, 100_000)] = 2000

    webhook_hosts: str = ""
    unsafe_private_webhooks: bool = False
    alert_webhook_url: str = ""
    alert_rate_limit_seconds: NonNegative = 300
    alert_webhook_timeout: Annotated[float, _range(0.1, 60)] = 10
    alert_on: str = "stale_job_recovered,job_max_retries_exceeded,job_failed_pattern,extension_missing"

    # Not settings: the names of those that were given, and the overrides of single lifecycles.
    given: list[str] = []
    lifecycles: dict[str, dict[str, int | float | None]] = {}

    @property
    def explicit(self) -> set[str]:
        """The settings that were given, or that differ from their defaults."""
        return {name for name in NAMES if getattr(self, name) != getattr(_DEFAULTS, name)}.union(self.given)

    @property
    def url(self) -> str:
        """The database URL; by default a SQLite file in the data directory."""
        return plain_url(self.database_url) or f"sqlite:///{self.data_dir}/holdfast.db"


NAMES = tuple(name for name in Settings.__struct_fields__ if name not in ("given", "lifecycles"))
_DEFAULTS = Settings()

# The minimum and maximum of each number; one that can be off may also be None.
RANGES: dict[str, tuple[float, float]] = {
    each.name: note.extra["range"]
    for each in msgspec.structs.fields(Settings)
    for kind in (each.type, *get_args(each.type))
    for note in getattr(kind, "__metadata__", ())
}

CHOICES: dict[str, tuple[str, ...]] = {
    each.name: ("true", "false") if each.type is bool else get_args(each.type)
    for each in msgspec.structs.fields(Settings)
    if each.type is bool or get_origin(each.type) is Literal
}

MAY_BE_OFF = frozenset(each.name for each in msgspec.structs.fields(Settings) if type(None) in get_args(each.type))


def load(
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    extensions: Iterable[SettingsSection] | None = (),
) -> Settings:
    """Read all layers. An unknown name is an error that suggests the nearest one.

    `extensions` are the settings of the app's extensions, which are checked too. None: the app is not imported yet, so
    an unknown name may belong to one of its extensions.
    """
    values: dict[str, Any] = {}
    typed: dict[str, str] = {}
    included = None if extensions is None else list(extensions)
    for layer, said in _layers(environment, file, overrides).items():
        found = {name: value for name, value in said.items() if _is_ours(name)}
        if included is not None and found.keys() < said.keys():
            _refuse_unknown({name: said[name] for name in said.keys() - found.keys()}, layer, included)
        values |= found
        typed |= {name: _typed(name, layer) for name in found}
    values = {name: _checked(name, value, typed[name]) for name, value in values.items()}
    plain = {name: value for name, value in values.items() if name in NAMES}
    settings = Settings(**plain, given=sorted(plain), lifecycles=by_lifecycle(values))
    if settings.heartbeat_seconds >= settings.lease_seconds:
        beat, lease = (typed.get(name, name) for name in ("heartbeat_seconds", "lease_seconds"))
        raise Invalid(
            f"{beat} ({settings.heartbeat_seconds:g}) must be shorter than {lease} ({settings.lease_seconds:g}), "
            "or every lease expires",
            code="invalid_setting",
        )
    for section in included or ():
        if not section.by_app:
            load_section(section, environment, file)
    return settings


def load_section(
    section: SettingsSection, environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Any:
    """The settings of one extension, from the environment and the file."""
    return section.read(*_sources(section, environment, file))


def shown_section(section: SettingsSection, by_app: msgspec.Struct | None = None) -> list[ShownSetting]:
    """Each setting of an extension, and where it comes from; `by_app`: as the app has assigned them."""
    return section.shown(*_sources(section), by_app)


def refuse_same_variables(section: SettingsSection, others: Iterable[SettingsSection]) -> None:
    """Raises if two settings share an environment variable."""
    taken = {f"{PREFIX}{name.upper()}": f"the setting {name} of Holdfast" for name in NAMES}
    taken |= {f"{PREFIX}{name.upper()}_FILE": f"the setting {name} of Holdfast" for name in SECRET}
    for other in others:
        taken |= {variable: f"the setting {each.full_name}" for variable, each in other.variables.items()}
    for variable, each in section.variables.items():
        if variable in taken:
            raise Invalid(
                f"extension {section.extension!r}: the variable {variable} of its setting {each.name!r} is that of "
                f"{taken[variable]}, too",
                code="extension_conflict",
            )


def _sources(
    section: SettingsSection, environment: Mapping[str, str] | None = None, file: Path | None = None
) -> tuple[Mapping[str, str], Any]:
    said = os.environ if environment is None else environment
    ours = {variable.upper(): value for variable, value in said.items() if variable.startswith(PREFIX)}
    return ours, _from_file(file or Path(FILE)).get(section.extension, {})


def plain_url(url: str) -> str:
    """The URL without SQLAlchemy's driver, as in `postgresql+asyncpg://`, and without its options."""
    scheme, separator, rest = url.partition("://")
    dialect, _, driver = scheme.partition("+")
    if dialect not in ("postgresql", "postgres", "sqlite"):
        return url
    if driver and "?" in rest:
        place, _, query = rest.partition("?")
        kept = [word for word in query.split("&") if word.partition("=")[0] not in _SQLALCHEMY_OPTIONS]
        query = "&".join(f"sslmode{word[3:]}" if word.startswith("ssl=") else word for word in kept)
        rest = f"{place}?{query}" if query else place
    return f"{dialect.replace('postgresql', 'postgres').replace('postgres', 'postgresql')}{separator}{rest}"


def migrate_command(settings: Settings, app: str = "", *, has_tables: bool = False) -> str:
    """The command that migrates this database, typed in this directory and environment.

    `app` is the reference of the app that names the database, if one does. `has_tables`: its extensions have tables.
    """
    with suppress(HoldfastError):
        here = load(extensions=None)
        if here.app == app if here.app or (app and has_tables) else here.url == settings.url:
            return "holdfast migrate"
    where = f"--app {quote(app)}" if app else f"--database {quote(without_password(settings.url))}"
    return f"holdfast migrate {where}"


def origins(
    environment: Mapping[str, str] | None = None, file: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Where each setting comes from: the last layer that sets it."""
    found = dict.fromkeys(NAMES, "default")
    for layer, values in _layers(environment, file, overrides).items():
        found |= dict.fromkeys(filter(_is_ours, values), layer)
    return found


def shown(settings: Settings, where: Mapping[str, str] | None = None) -> list[ShownSetting]:
    """Each effective setting, and where it comes from: by `origins`, else by comparing the layers."""
    where = where or origins(overrides=given_otherwise(settings))
    values = values_of(settings)
    values |= {name: HIDDEN if values[name] else "" for name in SECRET if name != "database_url"}
    values["database_url"] = without_password(settings.url)
    return [ShownSetting(name, value, where[name], f"{PREFIX}{name.upper()}") for name, value in values.items()]


def values_of(settings: Settings) -> dict[str, Any]:
    """By the names used in the environment and in the file."""
    return {name: getattr(settings, name) for name in NAMES} | flat(settings.lifecycles)


def wants_colour(environment: Mapping[str, str] | None = None) -> bool:
    """False if NO_COLOR is set (https://no-color.org), or on a dumb terminal."""
    said = os.environ if environment is None else environment
    return not said.get("NO_COLOR") and said.get("TERM") != "dumb"


def given_otherwise(settings: Settings, database_url: str | None = None) -> dict[str, Any]:
    """Values that differ from the given URL, the file, the environment and the defaults: a program assigned them."""
    read = values_of(load(overrides={"database_url": database_url}, extensions=None))
    return {name: value for name, value in values_of(settings).items() if name not in read or value != read[name]}


def secrets_in(settings: Settings) -> tuple[str, ...]:
    """Values that must never be shown; the password of a URL also in its decoded form."""
    values = [getattr(settings, name) for name in SECRET]
    passwords = [password for value in values for password in passwords_in(value)]
    plain = [value for value in values if value and "://" not in value]
    return (*plain, *passwords, *map(unquote, passwords), settings.alert_webhook_url)


def _layers(
    environment: Mapping[str, str] | None, file: Path | None, overrides: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """The settings of each layer, the weakest first."""
    return {
        FILE: _from_file(file or Path(FILE)),
        "environment": _from_environment(os.environ if environment is None else environment),
        "command line": {name: value for name, value in (overrides or {}).items() if value is not None},
    }


def _typed(name: str, layer: str) -> str:
    """The setting as it was written, for messages."""
    if layer == FILE:
        return f"{name} in {FILE}"
    return f"{PREFIX}{name.upper()}" if layer == "environment" else _OPTIONS.get(name, name)


def _is_ours(name: str) -> bool:
    return name in NAMES or setting_like(name) is not None


def _refuse_unknown(unknown: Mapping[str, Any], layer: str, included: list[SettingsSection]) -> None:
    """Raises unless they belong to an extension that the app includes, or that is installed."""
    sections = {section.extension: section for section in (*_sections_of(unknown), *included)}
    if layer != "environment":
        for name, value in unknown.items():
            if name not in sections:
                raise UnknownName.of("setting", name, [*names_like(name, NAMES), *sections], where=layer)
            sections[name].check_table(value)
        return
    variables = {variable for section in sections.values() for variable in section.variables}
    for name in unknown:
        if (variable := f"{PREFIX}{name.upper()}") not in variables:
            near = [each for section in sections.values() if _is_under(variable, section) for each in section.variables]
            others = [*near, *(f"{PREFIX}{each.upper()}" for each in names_like(name, NAMES))]
            raise UnknownName.of("setting", variable, others, where="the environment")


def _sections_of(names: Iterable[str]) -> list[SettingsSection]:
    """The settings of installed extensions that these names may belong to."""
    wanted = [each for each in installed_names() if any(name == each or name.startswith(f"{each}_") for name in names)]
    return [manifest.section for manifest in installed(wanted) if manifest.section is not None]


def _is_under(variable: str, section: SettingsSection) -> bool:
    return variable.startswith(f"{PREFIX}{section.extension.upper()}_")


def _checked(name: str, given: Any, typed: str) -> Any:
    """The value, converted to its type; a setting of one lifecycle has the type and range of the general one."""
    name = setting_like(name) or name
    value, allowed = None if given == OFF and name in MAY_BE_OFF else given, RANGES.get(name)
    read = None
    try:
        read = getattr(msgspec.convert({name: value}, Settings, strict=False), name)
        fits = allowed is None or read is None or allowed[0] <= read <= allowed[1]
    except ValueError:  # another type, or bytes that are not text
        fits = False
    if not fits:
        raise Invalid(f"{typed} must be {_must_be(name, value)}", code="invalid_setting")
    return read


def _must_be(name: str, value: Any) -> str:
    if name in RANGES:
        off = ", or off" if name in MAY_BE_OFF else ""
        return "a number from {:,} to {:,}{}, got {!r:.80}".format(*RANGES[name], off, value)
    if name in CHOICES:
        return f"{' or '.join(CHOICES[name])}, got {value!r:.80}"
    return "text"


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return flattened(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise Invalid(f"{path} is not TOML: {error}", code="invalid_setting") from None
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}", code="invalid_setting") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable.startswith(_IGNORED) or value == "":
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name.endswith("_file") and name.removesuffix("_file") in SECRET:
            found[name.removesuffix("_file")] = secret_in(variable, Path(value))
        else:
            found[name] = value
    return found
