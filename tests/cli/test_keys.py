"""`holdfast keys`: making, listing, rotating and revoking them."""

from pathlib import Path

import pytest

from holdfast.model.key import KeyText, parse
from tests.cli.conftest import Answer, Holdfast


def key_in(answer: Answer) -> KeyText:
    found = parse(answer.out.strip().encode())
    assert found is not None, answer
    return found


def test_a_key_is_printed_once_and_listed_without_its_secret(holdfast: Holdfast) -> None:
    """SEC-4: shown once."""
    made = holdfast("keys", "create", "--name", "shop", "--tenant", "acme", "--scopes", "jobs:create,jobs:read")
    key = key_in(made)
    assert made.err == f"key {key.id} of tenant acme may jobs:create, jobs:read; it cannot be shown again\n"
    listed = holdfast("keys", "list")
    [[*row, made_at, expires, used, may]] = listed.rows
    assert row == [key.id, "client", "acme", "shop", "", "live"]
    assert (expires, used, may) == ("", "", "jobs:create, jobs:read")
    assert made_at
    everything = listed.out + holdfast("keys", "list", "--json").out
    assert key.secret.decode() not in everything


def test_a_key_can_have_a_user_and_scopes_of_an_extension(holdfast: Holdfast) -> None:
    """Without `--app`: the command need not have the extension."""
    made = holdfast("keys", "create", "--subject", "alice", "--scopes", "jobs:read,images:write")
    key = key_in(made)
    assert made.err.splitlines() == [
        f"key {key.id} of tenant default for alice may images:write, jobs:read; it cannot be shown again",
        "only servers with the extension images check its scopes",
    ]
    [row] = holdfast("keys", "list").rows
    assert (row[4], row[-1]) == ("alice", "images:write, jobs:read")
    assert holdfast("keys", "list", "--json").json["keys"][0]["subject"] == "alice"
    rotated = holdfast("keys", "rotate", key.id, "--json").json
    assert (rotated["subject"], rotated["scopes"]) == ("alice", ["images:write", "jobs:read"])
    assert holdfast("keys", "create", "--scopes", "job:read").code == 2, "nearly a scope of the core"
    assert holdfast("keys", "create", "--subject", "x" * 201).code == 2
    wrong = holdfast("keys", "create", "--app", "tests.extension.toy:app", "--scopes", "notes:wrote")
    assert (wrong.code, "did you mean 'notes:write'?" in wrong.err) == (2, True), wrong.err


def test_an_unknown_scope_of_an_extension_is_rejected(holdfast: Holdfast) -> None:
    wrong = holdfast("keys", "create", "--scopes", "notes:raed", "--app", "tests.extension.toy:app")
    assert (wrong.code, wrong.out) == (2, "")
    assert "unknown scope 'notes:raed' in the extension notes; did you mean 'notes:read'?" in wrong.err


def test_json_has_the_key_and_all_about_it(holdfast: Holdfast) -> None:
    made = holdfast("keys", "create", "--kind", "admin", "--expires-in", "30d", "--rate", "5", "--json").json
    assert made["apiKey"].startswith(f"holdfast_admin_{made['keyId']}_")
    assert (made["scopes"], made["status"], made["ratePerSecond"]) == (["admin:read"], "live", 5)
    assert made["expiresAt"] > made["createdAt"]
    [listed] = holdfast("keys", "list", "--json").json["keys"]
    assert listed == {name: value for name, value in made.items() if name != "apiKey"}


def test_a_key_can_be_written_to_a_file_instead_of_stdout(holdfast: Holdfast, tmp_path: Path) -> None:
    said = holdfast("keys", "create", "--key-file", "shop.key")
    path = tmp_path / "shop.key"
    key = parse(path.read_bytes().strip())
    assert key is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert said.out == ""
    assert key.secret.decode() not in said.err
    again = holdfast("keys", "create", "--key-file", "shop.key")
    assert (again.code, len(holdfast("keys", "list").rows)) == (2, 1), "no key is made that has nowhere to go"
    assert holdfast("keys", "create", "--key-file", "no/such/folder.key").code == 2


def test_a_worker_key_is_created_by_the_name_of_the_worker(holdfast: Holdfast) -> None:
    holdfast("workers", "register", "--name", "encoder-1")
    typed = ("--kind", "worker", "--worker", "encoder-1", "--queues", "video")
    made = holdfast("keys", "create", *typed, "--json").json
    assert (made["kind"], made["queues"]) == ("worker", ["video"])
    assert holdfast("keys", "list").rows[1][-1] == "work (queues video)"
    assert holdfast("keys", "create", "--kind", "worker", "--worker", "nobody").code == 3


@pytest.mark.parametrize("whole", [True, False])
def test_a_key_is_revoked_by_its_id_or_by_the_key_itself(holdfast: Holdfast, whole: bool) -> None:
    made = holdfast("keys", "create")
    typed = made.out.strip() if whole else key_in(made).id
    assert holdfast("keys", "revoke", typed).out == f"key {key_in(made).id} is revoked\n"
    assert holdfast("keys", "revoke", typed, "--json").json["status"] == "revoked"
    rotated = holdfast("keys", "rotate", typed)
    assert (rotated.code, "is revoked or expired" in rotated.err) == (4, True)


def test_a_rotation_prints_when_the_old_key_expires(holdfast: Holdfast) -> None:
    old = key_in(holdfast("keys", "create", "--name", "shop"))
    rotated = holdfast("keys", "rotate", old.id, "--overlap", "1h")
    assert key_in(rotated).id != old.id
    assert f"key {old.id} expires at " in rotated.err
    assert [row[3] for row in holdfast("keys", "list").rows] == ["shop", "shop"]


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        ("create --scopes jobs:raed", 2, "did you mean 'jobs:read'?"),
        ("create --scopes admin:read", 2, "a client key cannot have admin:read"),
        ("create --kind robot", 2, "invalid choice: 'robot'"),
        ("create --rate 0", 2, "above 0"),
        ("create --expires-in soon", 2, "not a duration"),
        ("revoke nobody", 3, "no key 'nobody'"),
        ("rotate 0123456789abcdef", 3, "no key '0123456789abcdef'"),
    ],
)
def test_invalid_options_are_errors_with_a_message(holdfast: Holdfast, typed: str, code: int, says: str) -> None:
    answer = holdfast("keys", *typed.split())
    assert (answer.code, says in answer.err) == (code, True), answer.err
