"""`holdfast completion`: a real bash completes with it; the others are told the same."""

import shutil
import subprocess

import pytest

from holdfast.cli import main
from holdfast.cli.commands import make_parser
from holdfast.cli.completion import SCRIPTS, places

SECONDS = 60
# What bash itself does before it calls a completion function.
PRESS_TAB = """
eval "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_holdfast
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["holdfast", "que"], {"queues"}),
        (["holdfast", "jobs", "c"], {"create", "cancel"}),
        (["holdfast", "jobs", "list", "--st"], {"--state", "--status"}),
        (["holdfast", "jobs", "list", "--state", "re"], {"retrying", "rejected"}),
        (["holdfast", "jobs", "list", "--json", "--un"], {"--until"}),
        (["holdfast", "jobs", "list", "--type", ""], {""}),
        (["holdfast", "lifecycle", "show", "cr"], {"crawl"}),
        (["holdfast", "completion", ""], {"bash", "zsh", "fish", "--help"}),
        (["holdfast", "--ver"], {"--version"}),
        (["holdfast", "jobs", "events", "list", "--fo"], {"--follow"}),
    ],
)
def test_bash_completes(typed: list[str], offered: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    assert bash, "the tests need bash"
    answer = subprocess.run(
        [bash, "--norc", "-c", PRESS_TAB, "bash", script("bash", capsys), *typed],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert (set(answer.stdout.splitlines()), answer.stderr) == (offered, "")


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_every_command_and_every_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for place in places(make_parser()):
        assert place.path in text
        for option in place.options:
            assert option.flag.removeprefix("--") in text


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_the_shell_accepts_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not on the PATH")
    check = subprocess.run(
        [program, "-n", "/dev/stdin"],
        input=script(shell, capsys),
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (check.returncode, check.stderr) == (0, "")
