"""The text of a key: its form, its checksum, what a key to be made may ask for; and how secrets are compared."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.errors import HoldfastError
from holdfast.ids import Ids
from holdfast.model.key import SCOPES, Kind, NewKey, Scope, check_against, digest_of, parse, text_of
from tests.codes import code_of

SOURCE = Path(next(iter(holdfast.__path__)))
FORM = re.compile(r"holdfast_(client|worker|admin)_[0-9a-f]{16}_[0-9a-f]{64}_[0-9a-f]{8}")
IDS = Ids()


def new_text(kind: Kind = Kind.CLIENT) -> str:
    return text_of(kind, f"{IDS.bits(64):016x}", f"{IDS.bits(256):064x}")


@given(st.sampled_from(list(Kind)), st.integers(0, 2**64 - 1), st.integers(0, 2**256 - 1))
def test_an_api_key_contains_its_kind_and_is_parsed_back(kind: Kind, number: int, secret: int) -> None:
    """SEC-1: kind and fixed beginning for scanners, an id, 256 bits, a checksum."""
    text = text_of(kind, f"{number:016x}", f"{secret:064x}")
    assert FORM.fullmatch(text)
    assert parse(text.encode()) == (kind, f"{number:016x}", f"{secret:064x}".encode())


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**256 - 1), st.data())
def test_a_mistyped_api_key_is_detected_by_its_checksum(number: int, secret: int, data: st.DataObject) -> None:
    """SEC-1: whatever character is mistyped, dropped or doubled."""
    text = text_of(Kind.CLIENT, f"{number:016x}", f"{secret:064x}")
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("0123456789abcdef_xXZ \n").filter(lambda char: char != text[place]))
    for wrong in (text[:place] + other + text[place + 1 :], text[:place] + text[place + 1 :], text[:place] + text):
        assert parse(wrong.encode()) is None or wrong == text


@given(st.binary(max_size=200))
def test_any_other_text_is_no_api_key(junk: bytes) -> None:
    assert parse(junk) is None
    assert parse(b"holdfast_client_" + junk) is None


def test_generated_api_keys_are_unique() -> None:
    """SEC-1."""
    texts = {new_text() for _ in range(50_000)}
    assert len(texts) == 50_000
    assert len({parse(text.encode()).id for text in texts}) == 50_000  # type: ignore[union-attr]


def test_the_stored_digest_does_not_contain_the_secret() -> None:
    """SEC-2, R003-94."""
    secret = f"{IDS.bits(256):064x}".encode()
    assert re.fullmatch(r"[0-9a-f]{64}", digest_of(secret))
    assert secret.decode()[:5] != digest_of(secret)[:5] or secret.decode() != digest_of(secret)


def test_the_default_scopes_of_each_kind_of_key() -> None:
    """SEC-5: an operator's key can only read."""
    assert NewKey().stored_scopes() == sorted(SCOPES[Kind.CLIENT])
    assert NewKey(kind=Kind.ADMIN).stored_scopes() == [Scope.ADMIN_READ]
    assert NewKey(kind=Kind.WORKER, worker_id="w").stored_scopes() == [Scope.WORK]
    assert NewKey(kind=Kind.WORKER, worker_id="w", queues=["b", "a"]).stored_scopes() == ["work:a", "work:b"]
    assert NewKey(scopes=["jobs:read"]).stored_scopes() == [Scope.JOBS_READ]


@pytest.mark.parametrize("kind", [Kind.CLIENT, Kind.ADMIN])
def test_a_key_may_have_scopes_of_extensions(kind: Kind) -> None:
    new = NewKey(kind=kind, scopes=["images:write", SCOPES[kind][0]], subject="alice")
    new.check()
    assert new.stored_scopes() == sorted(["images:write", SCOPES[kind][0]])


def test_a_process_knows_the_scopes_of_its_own_extensions_only() -> None:
    known = {"images": {"images:write", "images:read"}}
    assert check_against(["jobs:read", "images:write", "crawl:read"], known) == ["crawl:read"]
    with pytest.raises(HoldfastError, match="did you mean 'images:write'") as refused:
        check_against(["images:wirte"], known)
    assert refused.value.code == "unknown_scope"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"scopes": ["jobs:raed"]}, "unknown_scope"),
        ({"scopes": ["admin:read"]}, "invalid_scope"),
        ({"kind": Kind.ADMIN, "scopes": ["jobs:read"]}, "invalid_scope"),
        ({"scopes": []}, "invalid_scope"),
        *(({"scopes": [scope]}, "unknown_scope") for scope in ("job:create", "work:mail", "Images:write", "images")),
        *(({"scopes": [scope]}, "unknown_scope") for scope in ("images:", ":write", "images:a:b", "images:wri te")),
        ({"kind": Kind.WORKER, "worker_id": "w", "scopes": ["work", "images:write"]}, "invalid_scope"),
        ({"subject": ""}, "invalid_field subject"),
        ({"subject": "x" * 201}, "invalid_field subject"),
        ({"queues": ["mail"]}, "invalid_field queues"),
        ({"kind": Kind.WORKER, "worker_id": "w", "queues": []}, "invalid_field queues"),
        ({"kind": Kind.WORKER}, "invalid_field worker_id"),
        ({"worker_id": "w"}, "invalid_field worker_id"),
        ({"tenant": ""}, "invalid_field tenant"),
        ({"name": "two\nlines"}, "invalid_field name"),
        *(({"expires_in": value}, "invalid_field expires_in_seconds") for value in (0, -1, 1e99)),
        *(({"rate_per_second": value}, "invalid_field rate_per_second") for value in (0, -1, 1e99)),
        ({"rate_per_second": float("nan")}, "invalid_field rate_per_second"),
        ({"expires_in": True}, "invalid_field expires_in_seconds"),
    ],
)
def test_a_key_with_invalid_fields_is_refused(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        NewKey(**asked).check()
    assert code_of(refused.value) == code


@pytest.mark.parametrize("file", ["server/auth/authenticator.py", "engine/admin/keys.py", "model/key.py"])
def test_secrets_are_compared_in_constant_time_only(file: str) -> None:
    """SEC-3: no `==` on anything that is called a secret or a digest."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    for node in compared:
        if any(isinstance(sign, ast.Eq | ast.NotEq | ast.In) for sign in node.ops):
            assert not re.search(r"secret|digest|text\.", ast.unparse(node)), ast.unparse(node)


def test_an_unknown_key_is_compared_in_constant_time() -> None:
    """SEC-3: and an unknown key is compared as a known one is."""
    source = (SOURCE / "server" / "auth" / "authenticator.py").read_text(encoding="utf-8")
    assert source.count("compare_digest(") == 2
    assert "_NO_DIGEST if found is None else found.digest" in source
