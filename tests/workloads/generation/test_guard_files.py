"""The files of the guard: their format, and what happens when they change."""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.workloads.generation.guard import PromptGuard, lists

STAT = Path.stat


class Changing:
    """A block list, a guard, and the seconds that pass for it."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.changes = path, 0.0, 0
        self.write("first")
        self.guard = PromptGuard(str(path), monotonic=lambda: self.now)

    def write(self, content: str | bytes) -> None:
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.changes += 1
        os.utime(self.path, (0, self.changes))

    def refused(self, after: float = 1.0) -> list[str]:
        self.now += after
        return [word for word in ("first", "second") if self.guard.refuses(word) == "blocklist"]


@pytest.fixture
def changing(tmp_path: Path) -> Changing:
    return Changing(tmp_path / "blocked.txt")


def guard_with(tmp_path: Path, content: str | bytes, allowed: str = "") -> PromptGuard:
    files = {"blocked.txt": content, "allowed.txt": allowed}
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return PromptGuard(*(str(tmp_path / name) for name in files), monotonic=lambda: 0.0)


# -- format ------------------------------------------------------------------------------------------------------------


def test_a_file_has_comments_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    lines = ["\ufeff# a comment", "", "  first  ", "\t#second", "third # not a comment", "/fo+rth/", "/", "and/or"]
    guard = guard_with(tmp_path, "\r\n".join(line for line in lines if line != "/"))
    assert [text for text in ("comment", "second", "third", "fth") if guard.refuses(text)] == []
    assert guard.refuses("first") == guard.refuses("third # not a comment") == guard.refuses("and or") == "blocklist"
    assert guard.refuses("foooorth") == "pattern"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ok\n/(/", "blocked.txt:2: the pattern is invalid: missing )"),
        ("/(?=a)b/", "blocked.txt:1: the pattern is invalid: invalid perl operator (the syntax is that of RE2"),
        (r"/(a)\1/", "blocked.txt:1: the pattern is invalid: invalid escape sequence"),
        ("/((a{100}){100}){100}/", "blocked.txt:1: the pattern is invalid"),
        ("\n\n***", "blocked.txt:3: it has no letter or digit"),
        ("a", "blocked.txt:1: it is a single letter"),
        ("/a*/", "blocked.txt:1: the pattern matches the empty text"),
        (b"ok\nok\nb\xe4d\n", "blocked.txt:3: this is not UTF-8"),
        (b"x" * (lists.MAX_BYTES + 1), "blocked.txt: the file is larger than 1048576 bytes"),
        ("\n" * (lists.MAX_LINES + 1), "blocked.txt:100001: there are more than 100000 lines"),
    ],
)
def test_an_invalid_file_is_an_error_at_the_start(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(Invalid, match=re.escape(message)):
        guard_with(tmp_path, content)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+c",
        "((x|a+)b?)*c",
        "(?:a{2,}){3,}c",
        "(a|a)+c",
        "(?:(a|b)b?)+c",
        r"a(.|\s)*b(.|\s)*c",
        "(a?){30}a{30}c",
        "a.*b.*c",
        ".*a.*b.*a.*b.*c",
        "(?i:a+)+c",
        "(?P<name>(ab)+?)*c",
        "(?:a.*b.*){5}c",
        "(a{1,30}b{1,30}){1,30}c",
    ],
)
def test_no_pattern_takes_long(tmp_path: Path, pattern: str) -> None:
    """With backtracking these would take from a minute to longer than the universe is old."""
    guard = guard_with(tmp_path, f"/{pattern}/")
    for text in ("ab" * 2000, "a" * 4000, "ab" * 32_768):
        assert guard.refuses(text) is None
    assert guard.refuses("abab" + "a" * 60 + "c ab" * 9 + "abc") in ("pattern", None)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("kill.*child", "how to KILL a child"),
        (r"\bgr(u|ü)n\w*", "das Grüne Gras"),
        (r"\p{L}+ing", "a мing"),
        (r"\(a+\)+", "(aa)"),
        ("(?:abc){2,5}", "abcabc"),
        ("(foo|bar)?x", "x"),
        ("(?P<name>ab)+", "abab"),
    ],
)
def test_patterns_are_found_in_any_case(tmp_path: Path, pattern: str, text: str) -> None:
    guard = guard_with(tmp_path, f"/{pattern}/")
    assert guard.refuses(text) == "pattern"
    assert guard.refuses("no such word") is None


def test_a_text_may_have_lone_surrogates(tmp_path: Path) -> None:
    guard = guard_with(tmp_path, "/kill.*child/")
    assert guard.refuses("kill \ud800 child") == "pattern"
    assert guard.refuses("\udfff") is None


def test_a_file_may_have_as_many_lines_as_the_limit(tmp_path: Path) -> None:
    guard_with(tmp_path, "\n" * lists.MAX_LINES)


def test_a_pattern_cannot_be_allowed(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"allowed.txt:2: a pattern cannot be allowed"):
        guard_with(tmp_path, "", "fine\n/.*/")


@pytest.mark.parametrize("name", ["missing.txt", ".", "\0"])
def test_a_file_that_cannot_be_read_is_an_error_at_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match="cannot be read"):
        PromptGuard(f"{tmp_path}/{name}", monotonic=lambda: 0.0)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_changed_file_is_read_again(changing: Changing) -> None:
    assert changing.refused() == ["first"]
    changing.write("second")
    assert changing.refused() == ["second"]
    changing.write("first\nsecond")
    assert changing.refused() == ["first", "second"]
    assert changing.guard.problem is None


def test_a_replaced_file_is_read_again(changing: Changing) -> None:
    other = changing.path.with_name("other.txt")
    other.write_text("other")
    os.utime(other, (0, changing.changes))
    other.write_text("secnd")
    other.replace(changing.path)
    changing.now += 1
    assert changing.guard.refuses("secnd") == "blocklist"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """At which files the guard looks."""
    looked: list[Path] = []
    monkeypatch.setattr(Path, "stat", lambda path: looked.append(path) or STAT(path))
    return looked


def test_the_file_is_looked_at_once_a_second(changing: Changing, looks: list[Path]) -> None:
    changing.write("second")
    assert changing.refused(after=0.9) == ["first"]
    assert looks == []
    assert changing.refused(after=0.2) == ["second"]
    looks.clear()
    for _ in range(20):
        changing.refused(after=0.1)
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("second\n/(/", ":2: the pattern is invalid"),
        (b"second\n\xff", ":2: this is not UTF-8"),
        ("second\n!", ":2: it has no letter"),
        (b"x" * (lists.MAX_BYTES + 1), ": the file is larger"),
    ],
)
def test_an_invalid_change_keeps_the_list(
    changing: Changing, caplog: pytest.LogCaptureFixture, content: str | bytes, problem: str
) -> None:
    changing.write(content)
    assert changing.refused() == changing.refused() == ["first"]
    assert f"{changing.path}{problem}" in (changing.guard.problem or "")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"{changing.path}{problem}" in record.getMessage()
    assert record.getMessage().endswith("the previous list stays in force")
    changing.write("second")
    assert changing.refused() == ["second"]
    assert changing.guard.problem is None


@pytest.mark.parametrize("directory", [False, True])
def test_a_lost_file_keeps_the_list_until_it_is_back(
    changing: Changing, caplog: pytest.LogCaptureFixture, directory: bool
) -> None:
    kept = changing.path.rename(changing.path.with_name("kept.txt"))
    if directory:
        changing.path.mkdir()
    assert changing.refused() == changing.refused() == ["first"]
    assert f"{changing.path} cannot be read" in (changing.guard.problem or "")
    assert len(caplog.records) == 1
    if directory:
        changing.path.rmdir()
    kept.rename(changing.path)
    assert changing.refused() == ["first"]
    assert changing.guard.problem is None


def test_a_file_without_permission_keeps_the_list(changing: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    changing.write("second")
    with monkeypatch.context() as root_may_read_everything:
        root_may_read_everything.setattr(Path, "open", denied)
        assert changing.refused() == ["first"]
        assert f"{changing.path}: [Errno 13] Permission denied" in (changing.guard.problem or "")
    assert changing.refused() == ["second"]
    assert changing.guard.problem is None


def test_the_allow_list_is_read_again_too(tmp_path: Path) -> None:
    guard = guard_with(tmp_path, "cock")
    later = PromptGuard(str(tmp_path / "blocked.txt"), str(tmp_path / "allowed.txt"), monotonic=iter(range(9)).__next__)
    (tmp_path / "allowed.txt").write_text("cock robin")
    assert guard.refuses("cock robin") == "blocklist"
    assert later.refuses("cock robin") is None
    (tmp_path / "allowed.txt").write_text("/x/")
    assert later.refuses("cock robin") is None
    assert "allowed.txt:1: a pattern cannot be allowed" in (later.problem or "")
