"""Settings come from four places, in a known order, and a typo is never silently ignored."""

from pathlib import Path

import pytest

from holdfast.errors import Invalid, UnknownName
from holdfast.settings import Settings, load


def test_without_anything_a_sqlite_file_in_the_data_directory_is_used() -> None:
    assert load({}, Path("absent.toml")).url == "sqlite:///.holdfast/holdfast.db"


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("lease_seconds = 1\nheartbeat_seconds = 1\nsweep_seconds = 1\n")
    settings = load({"HOLDFAST_HEARTBEAT_SECONDS": "2", "HOLDFAST_SWEEP_SECONDS": "2"}, file, {"sweep_seconds": 3})
    assert (settings.lease_seconds, settings.heartbeat_seconds, settings.sweep_seconds) == (1, 2, 3)


def test_an_unknown_variable_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'lease_seconds'") as caught:
        load({"HOLDFAST_LEASE_SECOND": "5"}, Path("absent.toml"))
    assert caught.value.code == "unknown_setting"


def test_an_unknown_key_in_the_file_is_an_error_too(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("databse_url = 'x'\n")
    with pytest.raises(UnknownName, match="database_url"):
        load({}, file)


@pytest.mark.parametrize("name", ["HOLDFAST_TEST_DATABASE_URL", "HOLDFAST_SERVICE_HOST", "HOLDFAST_PORT_80_TCP"])
def test_the_test_suite_and_kubernetes_may_set_their_own(name: str) -> None:
    assert load({name: "anything"}, Path("absent.toml")) == Settings()


def test_a_value_of_the_wrong_type_names_the_setting() -> None:
    with pytest.raises(Invalid, match="lease_seconds"):
        load({"HOLDFAST_LEASE_SECONDS": "soon"}, Path("absent.toml"))


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("postgresql://db/jobs\n")
    assert load({"HOLDFAST_DATABASE_URL_FILE": str(secret)}, Path("absent.toml")).url == "postgresql://db/jobs"
    with pytest.raises(Invalid, match="HOLDFAST_DATABASE_URL_FILE"):
        load({"HOLDFAST_DATABASE_URL_FILE": str(tmp_path / "absent")}, Path("absent.toml"))


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("= 3")
    with pytest.raises(Invalid, match="not TOML"):
        load({}, file)
