"""`holdfast config show`: each setting and where it comes from."""

from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.redaction import without_password
from holdfast.settings import NAMES
from tests.cli.conftest import Answer


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    return Answer(main(["config", "show", *arguments]), *capsys.readouterr())


def test_every_setting_is_shown_with_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "holdfast.toml").write_text("lease_seconds = 60\nmax_attempts = 3\n")
    monkeypatch.setenv("HOLDFAST_MAX_ATTEMPTS", "9")
    answer = show(capsys, "--database", "sqlite:///other.db")
    rows = {name: (value, origin) for name, value, origin in answer.rows}
    assert list(rows)[: len(NAMES)] == list(NAMES), "those of extensions come last"
    assert rows["database_url"] == ("sqlite:///other.db", "command line")
    assert rows["max_attempts"] == ("9", "environment")
    assert rows["lease_seconds"] == ("60", "holdfast.toml")
    assert rows["heartbeat_seconds"] == ("10", "default")
    assert rows["max_runtime_seconds"] == ("off", "default")


def test_settings_of_a_lifecycle_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R003-135, R003-139."""
    (tmp_path / "holdfast.toml").write_text("[lifecycle.transcode]\nlease_seconds = 60\n")
    monkeypatch.setenv("HOLDFAST_LIFECYCLE_TRANSCODE_NO_PROGRESS_SECONDS", "off")
    rows = {name: (value, origin) for name, value, origin in show(capsys).rows}
    assert rows["lifecycle_transcode_lease_seconds"] == ("60", "holdfast.toml")
    assert rows["lifecycle_transcode_no_progress_seconds"] == ("off", "environment")


def test_an_undeclared_lifecycle_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_LIFECYCLE_TRANSCOD_LEASE_SECONDS", "60")
    answer = show(capsys)
    assert (answer.code, answer.out) == (2, "")
    assert "did you mean 'lifecycle_transcode_lease_seconds'?" in answer.err


def test_json_names_the_environment_variable_of_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {setting["name"]: setting for setting in show(capsys, "--json").json["settings"]}
    assert settings["lease_seconds"] == {
        "name": "lease_seconds",
        "value": 30.0,
        "origin": "default",
        "variable": "HOLDFAST_LEASE_SECONDS",
    }
    assert settings["database_url"]["value"] == "sqlite:///.holdfast/holdfast.db"


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://app:s3cret@db/jobs?sslmode=require&sslpassword=s3cret")
    for arguments in ([], ["--json"]):
        shown = show(capsys, *arguments).out
        assert "s3cret" not in shown
        assert "postgresql://app:***@db/jobs?sslmode=require&sslpassword=***" in shown


def test_a_secret_of_any_form_is_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-39: the address of a chat's webhook is a secret as a whole, and a secret may look like an address."""
    for name in ("ADMIN_SECRET", "WORKER_KEY", "ALERT_WEBHOOK_URL"):
        monkeypatch.setenv(f"HOLDFAST_{name}", "https://hooks.example.com/s3cret")
    settings = {setting["name"]: setting for setting in show(capsys, "--json").json["settings"]}
    assert {settings[name]["value"] for name in ("admin_secret", "worker_key", "alert_webhook_url")} == {"***"}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/jobs", "postgresql://db/jobs"),
        ("postgresql://app@db/jobs", "postgresql://app@db/jobs"),
        ("postgresql://app:a@b:c/d@db/jobs", "postgresql://app:***@db/jobs"),
        ("postgresql://:secret@db/jobs", "postgresql://:***@db/jobs"),
        ("postgresql:///jobs?password=secret", "postgresql:///jobs?password=***"),
        ("sqlite:////srv/jobs.db", "sqlite:////srv/jobs.db"),
        ("a secret of another kind", "***"),
        ("", ""),
    ],
)
def test_urls_are_shown_without_their_secrets(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_an_unknown_setting_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_LEASE_SECOND", "5")
    answer = show(capsys)
    assert (answer.code, answer.out) == (2, "")
    assert "did you mean 'HOLDFAST_LEASE_SECONDS'?" in answer.err
