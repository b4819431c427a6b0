"""Commands of an installed extension: listed, run with an app that includes it, and left out where a name is taken."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands import make_parser
from holdfast.cli.completion import places
from holdfast.errors import Invalid
from holdfast.manifest import Argument, Command, CommandGroup, Manifest
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.note_commands import HERE
from tests.extension import toy
from tests.extension.distributions import install

ADD = ["ledger", "add", "j", "2", "--reason", "typo"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "site"
    place.mkdir()
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(toy.app, "_settings", None)
    monkeypatch.setattr(toy.ext, "_read_settings", None)
    return place


@pytest.fixture
def notes(site: Path) -> None:
    install(site, notes=f"{HERE}:manifest")


@pytest.fixture
def ledger(holdfast: Holdfast, notes: None) -> Holdfast:
    """The tables of the extension are there."""
    assert holdfast("migrate", "--app", "tests.extension.toy:app").code == 0
    return holdfast


def test_help_lists_the_commands_after_those_of_the_core(holdfast: Holdfast, notes: None) -> None:
    listed = holdfast("--help").out
    assert listed.index("completion") < listed.index("show the ledger of notes, 100% of it")
    assert "list the entries of a job" in holdfast("ledger", "--help").out
    taught = holdfast("ledger", "add", "--help").out
    for part in ("JOB", "TIMES", "--reason TEXT", "--mode {fast,good}", "how (good)", "--json", "--database", "--app"):
        assert part in taught
    assert taught.index("The audit log names it.") < taught.index("examples:\n  holdfast ledger add JOB 3")


def test_completion_knows_the_commands(holdfast: Holdfast, notes: None) -> None:
    found = {place.path: place for place in places(make_parser())}
    assert {"show", "add", "check"} <= found["/ledger"].words.keys()
    assert "--limit" in found["/ledger/show"].everything
    assert "/ledger/add" in holdfast("completion", "bash").out


def test_a_command_reads_and_writes(ledger: Holdfast, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_NOTES_KEEP_DAYS", "7")
    assert ledger(*ADD) == (0, "added\n", "")
    assert ledger(*ADD, "--mode", "fast", "--json").json == {"keepDays": 7, "seen": 4}
    shown = ledger("ledger", "show", "j", "--limit", "3")
    at = "2026-01-02 00:00:00"
    assert shown.rows == [*([entry, "6", "", at] for entry in ("fast-0", "fast-1", "good-0")), ["3 \\x1bentries"]]
    assert ledger("ledger", "show", "j", "--json").json == {"entries": ["fast-0", "fast-1", "good-0", "good-1"]}
    [line, _] = meanwhile(lambda engine: engine.audit.page()).lines
    assert (line.actor, line.action, line.subject) == ("extension notes", "LEDGER_ADD", "j")
    assert line.detail == {"by": "command line", "reason": "typo"}


def test_an_error_rolls_back_and_becomes_the_exit_code(ledger: Holdfast) -> None:
    assert ledger(*ADD, "--dry-run") == (4, "", "holdfast: nothing was added\n")
    missing = ledger("ledger", "show", "j", "--json")
    assert (missing.code, json.loads(missing.err)) == (
        3,
        {"code": "note_not_found", "message": "there is no such note"},
    )


def test_a_second_transaction_is_an_error(ledger: Holdfast) -> None:
    with pytest.raises(TypeError, match="this command already has an open transaction"):
        ledger("ledger", "lose")


def test_a_failed_report_is_exit_code_1(ledger: Holdfast) -> None:
    assert ledger("ledger", "check") == (1, "1 account is wrong\n", "")
    answer = ledger("ledger", "check", "--json")
    assert (answer.code, answer.json) == (1, {"wrong": 1})


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["show"], "the following arguments are required: JOB"),
        (["add", "j", "1"], "the following arguments are required: --reason"),
        (["show", "j", "--limit", "501"], "'501' is not a number from 1 to 500"),
        (["add", "j", "-4", "--reason", "x"], "'-4' is not a number from -3 up"),
        (["add", "j", "1", "--reason", "x", "--mode", "slow"], "--mode: invalid choice: 'slow'"),
        (["show", "j", "--limt", "3"], "unknown option --limt; did you mean --limit?"),
        (["shw"], "unknown command 'shw'; did you mean 'show'?"),
    ],
)
def test_arguments_are_validated(ledger: Holdfast, typed: list[str], says: str) -> None:
    answer = ledger("ledger", *typed)
    assert (answer.code, answer.out, says in answer.err) == (2, "", True), answer.err
    assert answer.err.startswith("usage: holdfast ledger")


def test_a_number_may_be_negative(ledger: Holdfast) -> None:
    assert ledger("ledger", "add", "j", "-3", "--reason", "x").code == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("sync", f"{HERE}:sync must be an async function, got a function"),
        ("odd", f"{HERE}:odd returned a dict, not a holdfast.extend.Report"),
        ("gone", "there is no module 'no_such_module'; is it installed, or a file in this directory?"),
    ],
)
def test_a_function_that_does_not_fit_is_named(ledger: Holdfast, command: str, says: str) -> None:
    assert ledger("ledger", command) == (2, "", f"holdfast: {says}\n")


def test_an_app_without_the_extension_is_an_error(
    ledger: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain.py").write_text(
        "from holdfast import App\napp = App(name='plain')\napp.job('a')(lambda: None)\n"
    )
    expected = (
        2,
        "",
        "holdfast: `holdfast ledger show` needs an app that includes extension 'notes', and app 'plain' does not "
        "include it; use --app tests.extension.toy:app\n",
    )
    assert ledger("ledger", "show", "j", "--app", "plain.py:app") == expected
    monkeypatch.setenv("HOLDFAST_APP", "plain.py:app")
    assert ledger("ledger", "show", "j") == expected
    assert ledger("ledger", "show", "j", "--app", "tests.extension.toy:app").code == 3


def test_a_manifest_without_an_app_needs_one(holdfast: Holdfast, site: Path) -> None:
    install(site, notes=f"{HERE}:without_app")
    answer = holdfast("ledger", "show", "j")
    assert (answer.code, answer.err) == (
        2,
        "holdfast: `holdfast ledger show` needs an app that includes extension 'notes', and no app is given; "
        "use --app MODULE:APP\n",
    )


@pytest.mark.postgres
def test_missing_tables_exit_with_1_and_name_migrate(
    fresh_postgres_url: str, holdfast: Holdfast, notes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", fresh_postgres_url)
    answer = holdfast("ledger", "show", "j")
    assert answer.code == 1
    assert answer.err.endswith("lacks notes 0001_ledger; run `holdfast migrate --app tests.extension.toy:app`\n")


def test_a_group_of_two_extensions_is_left_out(holdfast: Holdfast, site: Path) -> None:
    install(site, notes=f"{HERE}:manifest", books=f"{HERE}:same_group")
    warning = "warning: extensions 'books' and 'notes' both declare `holdfast ledger`; neither is available\n"
    listed = holdfast("--help")
    assert (listed.code, listed.err, "ledger" in listed.out) == (0, warning, False)
    answer = holdfast("ledger", "show", "j")
    assert (answer.code, answer.err.startswith(warning), "unknown command 'ledger'" in answer.err) == (2, True, True)
    assert holdfast("jobs", "list") == (0, "", "")


def test_a_group_with_the_name_of_a_core_command_is_left_out(holdfast: Holdfast, site: Path) -> None:
    install(site, books=f"{HERE}:group_of_the_core")
    assert holdfast("jobs", "list") == (0, "", "")
    listed = holdfast("--help")
    assert (listed.code, listed.err) == (
        0,
        "warning: `holdfast jobs` is a command of Holdfast; that of extension 'books' is not available\n",
    )


def test_a_manifest_that_cannot_be_imported_is_left_out(holdfast: Holdfast, site: Path) -> None:
    install(site, broken="no_such_module:manifest", notes=f"{HERE}:manifest")
    listed = holdfast("--help")
    assert (listed.code, "ledger" in listed.out) == (0, True)
    assert listed.err.startswith("warning: the manifest of extension 'broken' (no_such_module:manifest) cannot be")


def command(name: str = "show", **fields: Any) -> Command:
    return Command(**{"name": name, "about": "a", "run": "m:f", **fields})


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: Argument("User", about="x"), "argument 'User' is not a lower-case word"),
        (lambda: Argument("--json", about="x"), "argument '--json' is not a lower-case word"),
        (lambda: Argument("share", about="x", kind=float), "argument 'share' is of kind str or int"),
        (lambda: Argument("flag", about="x", kind=bool), "argument 'flag' is of kind str or int"),
        (lambda: command("Show"), "the name of a command is a lower-case word"),
        (lambda: command(about=""), "command 'show' has no description"),
        (lambda: command(run="m.f"), "command 'show' runs `module:function`, got 'm.f'"),
        (
            lambda: command(arguments=(Argument("a", about="x"), Argument("--a", about="x"))),
            "command 'show' has two arguments called 'a'",
        ),
        (
            lambda: CommandGroup(name="g", about="x", commands=(command(), command())),
            "command group 'g' has two commands called 'show'",
        ),
        (
            lambda: Manifest(name="e", commands=(CommandGroup(name="g", about="x", commands=()),) * 2),
            "extension 'e' has two command groups called 'g'",
        ),
    ],
)
def test_a_wrong_declaration_is_an_error(declare: Any, says: str) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        declare()
    assert caught.value.code == "invalid_extension"
