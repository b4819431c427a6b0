"""Settings come from four places, in a known order, and a typo is never silently ignored."""

from pathlib import Path

import pytest
from msgspec.structs import asdict

from holdfast.errors import Invalid, UnknownName
from holdfast.settings import RANGES, Settings, load


def test_the_default_database_is_a_sqlite_file_in_the_data_directory() -> None:
    assert load({}, Path("absent.toml")).url == "sqlite:///.holdfast/holdfast.db"


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("lease_seconds = 9\nheartbeat_seconds = 1\nsweep_seconds = 1\n")
    settings = load({"HOLDFAST_HEARTBEAT_SECONDS": "2", "HOLDFAST_SWEEP_SECONDS": "2"}, file, {"sweep_seconds": 3})
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.sweep_seconds) == (9, 2, 3)


def test_an_unknown_variable_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownName) as caught:
        load({"HOLDFAST_LEASE_SECOND": "5"}, Path("absent.toml"))
    assert caught.value.code == "unknown_setting"
    assert caught.value.message == (
        "unknown setting 'HOLDFAST_LEASE_SECOND' in the environment; did you mean 'HOLDFAST_LEASE_SECONDS'?"
    )


def test_a_lifecycle_has_settings_of_its_own(tmp_path: Path) -> None:
    """R003-135, R003-140: in the environment, and in the file as a table or by the full name."""
    file = tmp_path / "holdfast.toml"
    file.write_text("lifecycle_crawl_max_attempts = 2\n[lifecycle.transcode]\nlease_seconds = 60\nmax_attempts = 9\n")
    settings = load({"HOLDFAST_LIFECYCLE_TRANSCODE_MAX_ATTEMPTS": "4"}, file)
    assert settings.lifecycles == {"crawl": {"max_attempts": 2}, "transcode": {"lease_seconds": 60, "max_attempts": 4}}


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("LIFECYCLE_CRAWL_LEASE_SECOND", "did you mean 'HOLDFAST_LIFECYCLE_CRAWL_LEASE_SECONDS'"),
        ("LIFECYCLE_CRAWL_BACKOFF_BASE", "unknown setting"),
        ("LIFECYCLE_LEASE_SECONDS", "unknown setting"),
        ("LIFECYCLES", "unknown setting"),
        ("GIVEN", "unknown setting"),
    ],
)
def test_an_unknown_setting_of_a_lifecycle_suggests_the_nearest_name(variable: str, said: str) -> None:
    with pytest.raises(UnknownName, match=said):
        load({f"HOLDFAST_{variable}": "5"}, Path("absent.toml"))


def test_a_setting_of_a_lifecycle_has_the_range_of_the_one_for_all() -> None:
    with pytest.raises(
        Invalid, match="HOLDFAST_LIFECYCLE_CRAWL_MAX_ATTEMPTS must be a number from 1 to 1,000, got '0'"
    ):
        load({"HOLDFAST_LIFECYCLE_CRAWL_MAX_ATTEMPTS": "0"}, Path("absent.toml"))


def test_an_unknown_key_in_the_file_is_an_error_too(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("databse_url = 'x'\n")
    with pytest.raises(UnknownName, match=r"'databse_url' in holdfast\.toml; did you mean 'database_url'"):
        load({}, file)


@pytest.mark.parametrize("name", ["HOLDFAST_TEST_DATABASE_URL", "HOLDFAST_SERVICE_HOST", "HOLDFAST_PORT_80_TCP"])
def test_variables_of_tests_and_kubernetes_are_ignored(name: str) -> None:
    assert load({name: "anything"}, Path("absent.toml")) == Settings()


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("HOLDFAST_LEASE_SECONDS", "soon", "a number from 0.001 to 999,999,999, got 'soon'"),
        ("HOLDFAST_LEASE_SECONDS", "0", "a number from 0.001"),
        ("HOLDFAST_HEARTBEAT_SECONDS", "-1", "a number from 0.001"),
        ("HOLDFAST_SWEEP_SECONDS", "nan", "a number from 0.001"),
        ("HOLDFAST_MAX_RUNTIME_SECONDS", "inf", "to 999,999,999"),
        ("HOLDFAST_RETAIN_DEAD_SECONDS", "1e9", "a number from 0 to 999,999,999"),
        ("HOLDFAST_MAX_ATTEMPTS", "0", "a number from 1 to 1,000"),
        ("HOLDFAST_MAX_ATTEMPTS", "2.5", "a number from 1 to 1,000"),
        ("HOLDFAST_BACKOFF_JITTER", "1.1", "a number from 0 to 1"),
        ("HOLDFAST_BACKOFF_FACTOR", "1001", "to 1,000"),
        ("HOLDFAST_IDEMPOTENCY_TTL", "86399", "a number from 86,400"),
        ("HOLDFAST_ERROR_MAX_CHARS", "99", "a number from 100"),
        ("HOLDFAST_WORKER_JSON_MAX_BYTES", "\udcff", "a number from 100"),
    ],
)
def test_a_value_out_of_its_range_names_the_setting_and_what_is_allowed(
    variable: str, value: str, allowed: str
) -> None:
    with pytest.raises(Invalid) as caught:
        load({variable: value}, Path("absent.toml"))
    assert caught.value.code == "invalid_setting"
    assert caught.value.message.startswith(f"{variable} must be ")
    assert allowed in caught.value.message


def test_an_invalid_setting_is_reported_under_the_name_that_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("concurrency = 0\n")
    for environment, overrides, typed in (
        ({}, {}, "concurrency in holdfast.toml must be"),
        ({"HOLDFAST_CONCURRENCY": "0"}, {}, "HOLDFAST_CONCURRENCY must be"),
        ({"HOLDFAST_CONCURRENCY": "5"}, {"concurrency": 0}, "--concurrency must be"),
    ):
        with pytest.raises(Invalid) as caught:
            load(environment, file, overrides)
        assert caught.value.message.startswith(typed)


def test_every_number_has_a_range_and_its_default_is_inside() -> None:
    numbers = {name for name, default in asdict(Settings()).items() if type(default) in (int, float, type(None))}
    assert RANGES.keys() == numbers
    for name, (least, most) in RANGES.items():
        default = getattr(Settings(), name)
        assert default is None or least <= default <= most


def test_an_invalid_text_setting_is_refused_without_showing_its_value(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("database_url = 12345\n")
    with pytest.raises(Invalid, match=r"^database_url in holdfast\.toml must be text$"):
        load({}, file)


@pytest.mark.parametrize("heartbeat", ["30", "31"])
def test_a_heartbeat_must_be_shorter_than_the_lease(heartbeat: str) -> None:
    with pytest.raises(Invalid, match=r"^HOLDFAST_HEARTBEAT_SECONDS \(3.\) must be shorter than lease_seconds"):
        load({"HOLDFAST_HEARTBEAT_SECONDS": heartbeat}, Path("absent.toml"))


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://db/jobs\n")
    assert load({"HOLDFAST_DATABASE_URL_FILE": str(secret)}, Path("absent.toml")).url == "postgresql://db/jobs"
    with pytest.raises(Invalid, match="HOLDFAST_DATABASE_URL_FILE"):
        load({"HOLDFAST_DATABASE_URL_FILE": str(tmp_path / "absent")}, Path("absent.toml"))
    secret.write_bytes(b"\xff")
    with pytest.raises(Invalid, match=r"HOLDFAST_DATABASE_URL_FILE: .* not text"):
        load({"HOLDFAST_DATABASE_URL_FILE": str(secret)}, Path("absent.toml"))


@pytest.mark.parametrize("content", [b"= 3", b"\xff", b"lease_seconds = " + b"9" * 5000])
def test_a_file_that_is_not_toml_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_bytes(content)
    with pytest.raises(Invalid, match=r"holdfast.toml is not TOML"):
        load({}, file)


def test_a_file_that_cannot_be_read_is_named() -> None:
    """A file of the kernel that refuses to be read, also by root."""
    with pytest.raises(Invalid, match="cannot read /proc/self/mem"):
        load({}, Path("/proc/self/mem"))
