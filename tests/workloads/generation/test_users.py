"""Whose a generation is: the subject of the key. Other users and tenants do not see it, and keys have scopes."""

from typing import Any

import pytest

from holdfast.model.key import Kind
from tests.server.steps import ADMIN
from tests.workloads.generation.steps import ON_SQLITE, Service

READ, WRITE = ("generation:read",), ("generation:write",)
OTHER_ID = "019cd79f-2ffc-7000-874d-fe6b1006b8b0"


async def test_the_user_is_the_subject_of_the_key(service: Service) -> None:
    alice = await service.user("alice")
    made = await alice.made()
    assert await (await service.user("alice")).generation(made["generationId"]) == await alice.generation(
        made["generationId"]
    )
    assert (await service.http.get("/api/admin/credits?user=alice", headers=ADMIN)).json()["balance"] == 99
    assert await (await service.user("bob")).credits() == (100, 0, 100)


async def test_without_a_subject_the_user_is_the_id_of_the_key(service: Service) -> None:
    first, second = await service.user(), await service.user()
    accepted = await first.accepted()
    assert (await second.get("/generations"))["generations"] == []
    keys = (await service.http.get("/api/admin/keys", headers=ADMIN)).json()["keys"]
    balances = [
        (await service.http.get(f"/api/admin/credits?user={key['keyId']}", headers=ADMIN)).json()["reserved"]
        for key in keys
    ]
    assert sorted(balances) == [0, 1]
    assert (await second.refused("GET", f"/generations/{accepted['generationId']}"))[0] == 404


async def test_without_keys_the_user_is_default(service: Service) -> None:
    await service.accepted()
    answer = await service.http.get("/api/admin/credits?user=default", headers=ADMIN)
    assert answer.json() == {"balance": 100, "reserved": 1, "available": 99}


async def test_users_do_not_see_each_other(service: Service) -> None:
    """Of others it is 404, as what does not exist: not even that it exists is shown."""
    alice = await service.user("alice")
    made = await alice.made()
    asset = made["assets"][0]["assetId"]
    patch = {"json": {"favorite": True}}
    for other in (await service.user("bob"), await service.user("alice", tenant="other"), await service.user()):
        for id_ in (made["generationId"], OTHER_ID):
            path, missing = f"/generations/{id_}", (404, "generation_not_found")
            assert await other.refused("GET", path) == missing
            assert await other.refused("GET", f"{path}/events") == missing
            assert await other.refused("POST", f"{path}/cancel") == missing
        for id_ in (asset, OTHER_ID):
            path, missing = f"/assets/{id_}", (404, "asset_not_found")
            assert await other.refused("GET", path) == missing
            assert await other.refused("PATCH", path, **patch) == missing
            assert await other.refused("DELETE", path) == missing
            assert await other.refused("GET", f"{path}/file") == missing
        assert (await other.get("/generations"))["generations"] == []
        assert (await other.get("/assets"))["assets"] == []
        assert (await other.get("/assets/tags"))["tags"] == []
        assert await other.credits() == (100, 0, 100)
        assert await other.statement() == [("grant", 100)]
    [kept] = (await alice.get("/assets"))["assets"]
    assert (kept["assetId"], kept["favorite"]) == (asset, False)


@ON_SQLITE
async def test_an_id_that_is_none_is_404(service: Service) -> None:
    for id_ in ("1", "x" * 300, "%00", OTHER_ID.upper(), OTHER_ID):
        for method, path in (
            ("GET", f"/generations/{id_}"),
            ("POST", f"/generations/{id_}/cancel"),
            ("GET", f"/generations/{id_}/events"),
            ("GET", f"/assets/{id_}"),
            ("DELETE", f"/assets/{id_}"),
            ("GET", f"/assets/{id_}/file"),
        ):
            answer = await service.ask(method, path)
            assert answer.status_code == 404, (path, answer.text)


READS = [
    ("GET", "/generations"),
    ("GET", f"/generations/{OTHER_ID}"),
    ("GET", f"/generations/{OTHER_ID}/events"),
    ("GET", "/assets"),
    ("GET", "/assets/tags"),
    ("GET", f"/assets/{OTHER_ID}"),
    ("GET", f"/assets/{OTHER_ID}/file"),
    ("GET", "/credits"),
    ("GET", "/credits/statement"),
]
WRITES = [
    ("POST", "/generations"),
    ("POST", f"/generations/{OTHER_ID}/cancel"),
    ("PATCH", f"/assets/{OTHER_ID}"),
    ("DELETE", f"/assets/{OTHER_ID}"),
]
OPERATES = [("POST", "/api/admin/credits/grant")]
LOOKS = [("GET", "/api/admin/credits?user=alice"), ("GET", "/api/admin/generations/costs")]
BODIES: dict[str, Any] = {
    "/generations": {"prompt": "a"},
    f"/assets/{OTHER_ID}": {"favorite": True},
    "/api/admin/credits/grant": {"user": "alice", "amount": 1, "reason": "a test"},
}


@ON_SQLITE
@pytest.mark.parametrize(
    ("scopes", "kind", "allowed"),
    [
        (READ, Kind.CLIENT, READS),
        (WRITE, Kind.CLIENT, WRITES),
        ((*READ, *WRITE), Kind.CLIENT, READS + WRITES),
        (("jobs:read", "jobs:create"), Kind.CLIENT, []),
        (("admin:operate",), Kind.ADMIN, OPERATES),
        (("admin:read",), Kind.ADMIN, LOOKS),
    ],
    ids=["read", "write", "both", "none", "operate", "look"],
)
async def test_routes_need_their_scope(
    service: Service, scopes: tuple[str, ...], kind: Kind, allowed: list[tuple[str, str]]
) -> None:
    user = await service.user("alice", scopes=scopes, kind=kind)
    for method, path in READS + WRITES + OPERATES + LOOKS:
        body = BODIES.get(path) if method in {"POST", "PATCH"} else None
        answer = await user.ask(method, path, json=body)
        if (method, path) in allowed:
            assert answer.status_code in {200, 201, 202, 404}, (method, path, answer.text)
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path, answer.text)


@ON_SQLITE
async def test_once_there_is_a_key_requests_need_one(service: Service) -> None:
    await service.user("alice")
    for method, path in READS + WRITES:
        answer = await service.ask(method, path, json=BODIES.get(path) if method in {"POST", "PATCH"} else None)
        assert answer.status_code == 401, (method, path, answer.text)
    for method, path in OPERATES + LOOKS:
        answer = await service.ask(method, path, json=BODIES.get(path) if method == "POST" else None)
        assert answer.status_code in {401, 403}, (method, path, answer.text)
    assert service.rows().keys().isdisjoint({"holdfast_jobs", "holdfast_generation_request"})


@ON_SQLITE
async def test_a_body_cannot_name_a_user(service: Service) -> None:
    alice = await service.user("alice")
    assert await alice.rejected(user="bob") == (422, "invalid_field")
    await alice.ask("POST", "/generations", params={"user": "bob"}, json={"prompt": "a"})
    for user, images in (("bob", 0), ("alice", len((await alice.get("/generations"))["generations"]))):
        answer = await service.http.get(f"/api/admin/credits?user={user}", headers=ADMIN)
        assert answer.json() == {"balance": 100, "reserved": images, "available": 100 - images}
