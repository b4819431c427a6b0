"""`caller_field` of a job type: over HTTP the server sets the user in the payload; a request cannot."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import App
from holdfast.errors import InvalidField
from holdfast.extend import Extension, Request
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from tests.server.steps import Served, bearer, serving


def drawings() -> Extension:
    extension = Extension("drawings")

    @extension.job("DRAW", caller_field="user", limit_key="user")
    async def draw(user: str, prompt: str) -> None: ...

    @extension.route("POST", "/drawings", scope="jobs:create", answers={201: "application/json"})
    async def create(request: Request) -> str:
        return (await request.enqueue(draw, user="a friend", prompt="a cat")).id

    return extension


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    app = App(settings=Settings(database_url=store_url), name="drawings")
    app.include(drawings())
    yield app
    await app.close()


@pytest.fixture
async def served(store_url: str, app: App) -> AsyncIterator[Served]:
    async with serving(store_url, app=app) as served:
        yield served


async def key_of(served: Served, subject: str | None) -> dict[str, str]:
    return bearer((await served.engine.keys.create(NewKey(subject=subject))).text)


async def user_of(served: Served, job_id: str) -> Any:
    return (await served.engine.reads.get(job_id)).payload["user"]


def drawing(**more: Any) -> dict[str, Any]:
    return {"jobType": "DRAW", "payload": {"prompt": "a cat", **more}}


async def test_the_server_fills_in_the_subject_of_the_caller(served: Served) -> None:
    """Of a key without a subject it is the id; without keys it is `default`."""
    local = await served.http.post("/jobs", json=drawing())
    assert (local.status_code, await user_of(served, local.json()["jobId"])) == (202, "default"), local.text
    made = await served.engine.keys.create(NewKey())
    for headers, user in ((await key_of(served, "alice"), "alice"), (bearer(made.text), made.key.id)):
        alone = await served.http.post("/jobs", json=drawing(), headers=headers)
        batch = await served.http.post("/jobs/batch", json={"jobs": [drawing(), drawing()]}, headers=headers)
        ids = [alone.json()["jobId"], *(job["jobId"] for job in batch.json()["jobs"])]
        assert [await user_of(served, job_id) for job_id in ids] == [user] * 3


async def test_a_client_cannot_name_the_user(served: Served) -> None:
    headers = await key_of(served, "alice")
    for user in ("bob", "alice", None):
        alone = await served.http.post("/jobs", json=drawing(user=user), headers=headers)
        batch = await served.http.post("/jobs/batch", json={"jobs": [drawing(), drawing(user=user)]}, headers=headers)
        for answer, start in ((alone, "payload of DRAW: `user`: "), (batch, "jobs[1]: payload of DRAW: `user`: ")):
            problem = answer.json()
            assert (answer.status_code, problem["code"], problem["field"]) == (422, "invalid_payload", "user")
            assert problem["detail"].startswith(start)
    assert (await served.engine.reads.page()).jobs == []


async def test_the_payload_is_validated_with_the_user_in_it(served: Served) -> None:
    wrong = await served.http.post("/jobs", json={"jobType": "DRAW", "payload": {"prompt": 1}})
    assert (wrong.json()["code"], wrong.json()["field"]) == ("invalid_payload", "prompt")


async def test_the_same_key_of_two_users_names_two_requests(served: Served) -> None:
    alice, bob = await key_of(served, "alice"), await key_of(served, "bob")
    same = {**drawing(), "idempotencyKey": "k"}
    first, repeat = [await served.http.post("/jobs", json=same, headers=alice) for _ in range(2)]
    assert repeat.json()["jobId"] == first.json()["jobId"]
    assert (await served.http.post("/jobs", json=same, headers=bob)).json()["code"] == "idempotency_key_reused"


async def test_code_of_the_app_passes_the_user_itself(served: Served, app: App) -> None:
    """And so does an operator who redrives a job with another payload."""
    [extension] = app.extensions.values()
    assert extension.handlers["DRAW"].caller_field == "user"
    made = await served.http.post("/drawings", headers=await key_of(served, "alice"))
    assert await user_of(served, made.json()) == "a friend"
    await served.engine.cancel(made.json())
    kept = await served.engine.redrive(made.json())
    assert await user_of(served, kept.id) == "a friend"
    await served.engine.cancel(kept.id)
    edited = await served.engine.redrive(kept.id, payload={"user": "another", "prompt": "a dog"})
    assert await user_of(served, edited.id) == "another"


@pytest.mark.parametrize("field", ["usr", "", 7, ["user"]])
def test_it_is_a_parameter_of_the_handler(field: Any) -> None:
    with pytest.raises(
        InvalidField, match=r"job type 'DRAW': caller_field must be a parameter .*user, prompt"
    ) as caught:

        @App(name="drawings").job("DRAW", caller_field=field)
        async def draw(user: str, prompt: str) -> None: ...

    assert caught.value.fields["field"] == "caller_field"
