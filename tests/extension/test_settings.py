"""Settings of extensions: typed, from the environment or a table of the file, and a mistake is named."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from holdfast import App
from holdfast.cli import main
from holdfast.errors import Invalid, UnknownName
from holdfast.extend import Extension, Secret
from holdfast.extension_settings import SettingsSection, installed
from holdfast.settings import Settings, load, load_section
from tests.cli.conftest import Answer
from tests.docs.generate import SETTINGS, with_settings
from tests.extension import toy
from tests.extension.distributions import install

MANIFEST = """
from typing import Annotated
from msgspec import Meta, Struct
from holdfast.manifest import Manifest, Secret

class Settings(Struct):
    storage_url: Secret = ""
    sides_max: Annotated[int, Meta(ge=16, le=8000, description="pixels")] = 4000

manifest = Manifest(name="frames", settings=Settings, job_types=("FRAME",), scopes=("frames:write",))
"""


class Everything(Struct, kw_only=True):
    name: str
    keep_days: Annotated[int, Meta(ge=1)] = 30
    share: Annotated[float, Meta(gt=0, le=1)] | None = None
    mode: Literal["fast", "good"] = "fast"
    strict: bool = False
    api_key: Secret | None = None


SECTION = SettingsSection("pages", Everything)
ABSENT = Path("absent.toml")


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toy.ext, "_read_settings", None)
    yield
    toy.ext._read_settings = None


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with an extension."""
    place = tmp_path / "site"
    install(place, frames="frames_manifest:manifest")
    (place / "frames_manifest.py").write_text(MANIFEST)
    monkeypatch.syspath_prepend(place)


def holdfast(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    return Answer(main([*arguments]), *capsys.readouterr())


def test_the_environment_overrides_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[pages]\nname = 'a'\nkeep_days = 5\nstrict = true\n")
    read = load_section(SECTION, {"HOLDFAST_PAGES_KEEP_DAYS": "7", "HOLDFAST_PAGES_SHARE": "0.5"}, file)
    assert read == Everything(name="a", keep_days=7, share=0.5, strict=True)


def test_a_secret_can_be_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("abc\n")
    said = {"HOLDFAST_PAGES_NAME": "x", "HOLDFAST_PAGES_API_KEY_FILE": f"{tmp_path / 'key'}"}
    assert load({}, ABSENT, extensions=[]) == load(said, ABSENT, extensions=[SECTION])
    assert load_section(SECTION, said, ABSENT).api_key == "abc"
    with pytest.raises(Invalid, match="HOLDFAST_PAGES_API_KEY_FILE: cannot read"):
        load_section(SECTION, {**said, "HOLDFAST_PAGES_API_KEY_FILE": "nowhere"}, ABSENT)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("KEEP_DAYS", "0", "HOLDFAST_PAGES_KEEP_DAYS must be a whole number, 1 or more, got '0'"),
        ("KEEP_DAYS", "soon", "HOLDFAST_PAGES_KEEP_DAYS must be a whole number, 1 or more, got 'soon'"),
        ("SHARE", "2", "HOLDFAST_PAGES_SHARE must be a number, 1 or less, more than 0 or off, got '2'"),
        ("SHARE", "nan", "HOLDFAST_PAGES_SHARE must be a number, 1 or less, more than 0 or off, got 'nan'"),
        ("MODE", "best", "HOLDFAST_PAGES_MODE must be fast or good, got 'best'"),
        ("STRICT", "perhaps", "HOLDFAST_PAGES_STRICT must be true or false, got 'perhaps'"),
        ("NAME", "", "extension 'pages' needs HOLDFAST_PAGES_NAME: text"),
    ],
)
def test_an_invalid_value_names_the_variable_and_the_allowed_values(variable: str, value: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        load({"HOLDFAST_PAGES_NAME": "x", f"HOLDFAST_PAGES_{variable}": value}, ABSENT, extensions=[SECTION])
    assert (caught.value.code, caught.value.message) == ("invalid_setting", message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[pages]\nname = 'x'\nkeep_day = 1",
            r"unknown setting 'keep_day' in \[pages\] of .* did you mean 'keep_days'",
        ),
        ("[pages]\nname = 'x'\nkeep_days = 0", r"keep_days in \[pages\] of holdfast.toml must be .* 1 or more, got 0"),
        ("pages = 3", r"pages in holdfast.toml must be a table: \[pages\]"),
        ("[page]\nkeep_days = 3", "unknown setting 'page' in holdfast.toml; did you mean 'pages'"),
    ],
)
def test_an_invalid_value_in_the_file_names_its_table(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    with pytest.raises(Invalid, match=message):
        load({}, file, extensions=[SECTION])


def test_an_unknown_variable_under_its_prefix_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'HOLDFAST_PAGES_KEEP_DAYS'"):
        load({"HOLDFAST_PAGES_KEEP_DAY": "1"}, ABSENT, extensions=[SECTION])


def test_a_variable_of_an_extension_that_is_neither_installed_nor_included_is_an_error() -> None:
    said = {"HOLDFAST_NOTES_KEEP_DAYS": "1"}
    with pytest.raises(UnknownName, match="HOLDFAST_NOTES_KEEP_DAYS"):
        load(said, ABSENT)
    load(said, ABSENT, extensions=toy.app.sections)
    load(said, ABSENT, extensions=None)  # the app says it later


@pytest.mark.usefixtures("bundled")
def test_variables_of_an_installed_extension_are_known_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert load({"HOLDFAST_FRAMES_STORAGE_URL": "s3://x", "HOLDFAST_FRAMES_SIDES_MAX": "1"}, ABSENT) == Settings()
    with pytest.raises(UnknownName, match="did you mean 'HOLDFAST_FRAMES_STORAGE_URL'"):
        load({"HOLDFAST_FRAMES_STORAGE_URI": "s3://x"}, ABSENT)
    (manifest,) = installed(["frames"])
    assert (manifest.job_types, manifest.scopes) == (("FRAME",), ("frames:write",))
    rows = {row[0]: row[1:] for row in holdfast(capsys, "config", "show").rows}
    assert rows["frames.sides_max"] == ["4000", "default"]


def test_variables_of_bundled_extensions_are_known_everywhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not run the image service accepts its settings, and shows them."""
    monkeypatch.setenv("HOLDFAST_IMAGES_MAX_BYTES", "1000")
    monkeypatch.setenv("HOLDFAST_IMAGES_SECRET_ACCESS_KEY", "s3cr3t-of-images")
    assert load(file=ABSENT) == Settings()
    answer = holdfast(capsys, "config", "show")
    rows = {row[0]: row[1:] for row in answer.rows}
    assert {name for name in rows if name.startswith("images.")} == {
        each.full_name for manifest in installed(["images"]) for each in manifest.section.fields.values()
    }
    assert rows["images.max_bytes"] == ["1000", "environment"]
    assert "s3cr3t" not in answer.out
    monkeypatch.setenv("HOLDFAST_IMAGES_MAX_BITES", "1")
    assert "did you mean 'HOLDFAST_IMAGES_MAX_BYTES'" in holdfast(capsys, "config", "show").err


@pytest.mark.usefixtures("bundled")
def test_the_documentation_table_is_generated_from_the_settings() -> None:
    (manifest,) = installed(["frames"])
    page = f"# Frames\n{SETTINGS}\nold\n<!-- end of the generated part -->\nmore\n"
    made = with_settings(page, [manifest.section])
    assert (made, made.endswith("more\n"), "old" in made) == (with_settings(made, [manifest.section]), True, False)
    assert [line for line in made.splitlines() if line.startswith("| `")] == [
        "| `HOLDFAST_FRAMES_STORAGE_URL` | empty | text | A secret. |",
        "| `HOLDFAST_FRAMES_SIDES_MAX` | `4000` | a whole number, from 16 to 8,000 | pixels |",
    ]


def test_a_manifest_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, broken="no_such_module:manifest")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Invalid, match="manifest of extension 'broken'"):
        load({"HOLDFAST_BROKEN_X": "1"}, ABSENT)
    load({}, ABSENT)


def test_config_show_shows_extension_settings_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_NOTES_KEEP_DAYS", "7")
    monkeypatch.setenv("HOLDFAST_NOTES_API_KEY", "s3cr3t-of-notes")
    toy.app._settings = None
    answer = holdfast(capsys, "config", "show", "--json", "--app", "tests.extension.toy:app")
    assert "s3cr3t" not in answer.out
    rows = {row["name"]: row for row in json.loads(answer.out)["settings"]}
    assert rows["notes.keep_days"] == {
        "name": "notes.keep_days",
        "value": 7,
        "origin": "environment",
        "variable": "HOLDFAST_NOTES_KEEP_DAYS",
    }
    assert rows["notes.api_key"]["value"] == "***"
    assert toy.ext.settings == toy.Settings(keep_days=7, api_key="s3cr3t-of-notes")
    monkeypatch.setenv("HOLDFAST_NOTES_KEEP_DAY", "7")
    answer = holdfast(capsys, "config", "show", "--app", "tests.extension.toy:app")
    assert "did you mean 'HOLDFAST_NOTES_KEEP_DAYS'" in answer.err


def test_an_app_can_pass_extension_settings(capsys: pytest.CaptureFixture[str]) -> None:
    ext = Extension("pages", settings=Everything, package="tests")
    ext.settings = Everything(name="mine", api_key="k")
    assert ext.settings.name == "mine"
    assert next((row.name, row.value, row.origin) for row in ext.shown_settings()) == ("pages.name", "mine", "app")
    app = App(name="gives")
    app.include(ext)
    load({}, ABSENT, extensions=app.sections)  # which does not ask for what the app gives
    with pytest.raises(UnknownName, match="did you mean 'HOLDFAST_PAGES_NAME'"):
        load({"HOLDFAST_PAGES_NAMES": "x"}, ABSENT, extensions=app.sections)
    with pytest.raises(Invalid, match="extension 'pages' has no settings of type an int"):
        ext.settings = 3
    with pytest.raises(Invalid, match="declares no settings"):
        _ = Extension("other", package="tests").settings


def test_a_variable_in_use_is_an_error_that_names_both() -> None:
    class Seconds(Struct):
        seconds: float = 1

    class Days(Struct):
        bar_days: int = 1

    class BarDays(Struct):
        days: int = 1

    app = App(name="settings")
    with pytest.raises(Invalid, match=r"extension 'lease'.*HOLDFAST_LEASE_SECONDS.*the setting lease_seconds of Hold"):
        app.include(Extension("lease", settings=Seconds, package="tests"))
    app.include(Extension("foo", settings=Days, package="tests"))
    with pytest.raises(Invalid, match=r"extension 'foo_bar'.*HOLDFAST_FOO_BAR_DAYS.*the setting foo\.bar_days"):
        app.include(Extension("foo_bar", settings=BarDays, package="tests"))


@pytest.mark.parametrize("name", ["traces", "test", "app", "holdfast", "holdfast_notes"])
def test_an_extension_name_that_holdfast_reserves_is_rejected(name: str) -> None:
    with pytest.raises(Invalid, match="that Holdfast does not reserve"):
        Extension(name, package="tests")


def test_an_unsupported_settings_type_is_rejected() -> None:
    class Lists(Struct):
        names: list[str] = []

    class Clash(Struct):
        key: Secret = ""
        key_file: str = ""

    for wrong, message in ((dict, "a subclass of msgspec.Struct"), (Lists, "'names' must be"), (Clash, "key_file")):
        with pytest.raises(Invalid, match=message):
            Extension("pages", settings=wrong, package="tests")


async def test_an_invalid_setting_fails_before_the_database_is_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_PAGES_KEEP_DAYS", "0")
    app = App(Settings(database_url=f"sqlite:///{tmp_path}/x.db"), name="settings")
    app.include(Extension("pages", settings=Everything, package="tests"))
    with pytest.raises(Invalid, match="HOLDFAST_PAGES_KEEP_DAYS must be"):
        await app.engine()
