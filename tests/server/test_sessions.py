"""Browser sessions: a cookie stands for a key, and a page from elsewhere can do nothing with it."""

import httpx2
import pytest

from holdfast.model import NewJob
from holdfast.model.key import Kind, NewKey, text_of
from holdfast.server.api import streams
from holdfast.server.auth import rate_limit, ttl_cache
from tests.clocks import WholeClock
from tests.server.event_reader import watching
from tests.server.steps import Served, bearer, serving

JOB = {"jobType": "t", "payload": {}}


async def sign_in(served: Served, key: str, **headers: str) -> httpx2.Response:
    return await served.http.post("/session", json={"key": key}, headers=headers)


async def signed_in(served: Served, **words: object) -> tuple[str, str]:
    """The id of a new key, and the CSRF token; the cookie is in the client from then on."""
    key, text = await served.engine.keys.create(NewKey(**words))  # type: ignore[arg-type]
    answer = await sign_in(served, text)
    assert answer.status_code == 201, answer.text
    return key.id, answer.json()["csrfToken"]


async def test_a_session_cookie_authenticates_as_its_key(served: Served) -> None:
    key, csrf = await signed_in(served, tenant="acme", subject="alice")
    who = (await served.http.get("/session")).json()
    assert {name: who[name] for name in ("keyId", "kind", "tenant", "subject", "csrfToken")} == {
        "keyId": key,
        "kind": "client",
        "tenant": "acme",
        "subject": "alice",
        "csrfToken": csrf,
    }
    made = await served.http.post("/jobs", json=JOB, headers={"X-CSRF-Token": csrf})
    assert made.status_code == 202
    assert (await served.engine.reads.get(made.json()["jobId"])).tenant == "acme"
    assert (await served.http.get(f"/jobs/{made.json()['jobId']}")).status_code == 200
    refused = await served.http.get("/api/admin/jobs")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


async def test_the_cookie_is_http_only_and_same_site(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    _, text = await served.engine.keys.create(NewKey())
    plain, proxied = (
        (await sign_in(served, text)).headers["set-cookie"],
        (await sign_in(served, text, **{"X-Forwarded-Proto": "https"})).headers["set-cookie"],
    )
    token, *words = plain.split("; ")
    assert token.startswith("holdfast_session=")
    assert words == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Lax"]
    token, *secure = proxied.split("; ")
    assert token.startswith("__Host-holdfast_session=")
    assert secure == [*words, "Secure"]


async def test_behind_tls_the_cookie_is_secure(fresh_sqlite_url: str) -> None:
    async with serving(fresh_sqlite_url, behind_tls=True, session_seconds=60) as served:
        _, text = await served.engine.keys.create(NewKey())
        cookie, *words = (await sign_in(served, text)).headers["set-cookie"].split("; ")
        assert {"Secure", "Max-Age=60"} <= set(words)
        tossed = cookie.removeprefix("__Host-")
        for sent, status in ((cookie, 200), (tossed, 401), (f"{tossed[:-1]}x; {tossed}; {cookie}", 200)):
            assert (await served.http.get("/session", headers={"Cookie": sent})).status_code == status, (
                "a neighbouring host can set the other name, and not this one"
            )


async def test_unsafe_methods_need_the_csrf_token(served_on_sqlite: Served) -> None:
    """A page from elsewhere can send the cookie, and knows nothing else."""
    served = served_on_sqlite
    _, csrf = await signed_in(served)
    for given in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "0" * 64}, {"X-CSRF-Token": csrf[:-1]}):
        for asked in (
            served.http.post("/jobs", json=JOB, headers=given),
            served.http.delete("/session", headers=given),
        ):
            refused = await asked
            assert (refused.status_code, refused.json()["code"]) == (403, "csrf_refused")
    assert (await served.engine.reads.page()).jobs == []
    for path in ("/jobs", "/session"):
        assert (await served.http.get(path)).status_code == 200
        assert (await served.http.head(path)).status_code == 200


async def test_an_event_source_works_with_the_cookie_alone(served: Served) -> None:
    await signed_in(served)
    job = (await served.engine.create(NewJob(type="t"))).id
    async with served.http.stream("GET", f"/jobs/{job}/events") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                assert job in line
                break


async def test_a_stream_ends_at_sign_out(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.05)
    served = served_on_sqlite
    _, csrf = await signed_in(served)
    cookie = {"Cookie": f"holdfast_session={served.http.cookies['holdfast_session']}"}
    async with watching(served, "/events", headers=cookie) as reader:
        await reader.block()
        assert (await served.http.delete("/session", headers={"X-CSRF-Token": csrf})).status_code == 204
        assert await reader.next() is None


async def test_a_key_in_the_header_overrides_the_cookie(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    await signed_in(served, tenant="acme")
    _, other = await served.engine.keys.create(NewKey(tenant="other"))
    made = await served.http.post("/jobs", json=JOB, headers=bearer(other))
    assert made.status_code == 202, "with a key no token is needed"
    assert (await served.engine.reads.get(made.json()["jobId"])).tenant == "other"
    assert (await served.http.get("/jobs", headers=bearer("gibberish"))).status_code == 401


async def test_a_session_ends_at_sign_out(served: Served) -> None:
    _, csrf = await signed_in(served)
    token = served.http.cookies["holdfast_session"]
    out = await served.http.delete("/session", headers={"X-CSRF-Token": csrf})
    assert out.status_code == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert "holdfast_session" not in served.http.cookies
    cookie = {"Cookie": f"other=1; holdfast_session={token}"}
    over = await served.http.get("/session", headers=cookie)
    assert (over.status_code, over.json()["code"]) == (401, "session_over")
    assert (await served.http.get("/jobs", headers=cookie)).status_code == 401


async def test_a_session_ends_with_its_expiry_or_its_key(store_url: str) -> None:
    clock = WholeClock()
    async with serving(store_url, clock=clock, session_seconds=100) as served:
        key, _ = await signed_in(served)
        assert (await served.http.get("/jobs")).status_code == 200
        await served.engine.keys.revoke(key)
        clock.advance(ttl_cache.TTL_SECONDS)
        assert (await served.http.get("/jobs")).status_code == 401
        assert (await served.http.get("/session")).json()["code"] == "session_over"
        await signed_in(served, expires_in=50)
        clock.advance(51)
        assert (await served.http.get("/jobs")).status_code == 401
        await signed_in(served)
        clock.advance(99)
        assert (await served.http.get("/jobs")).status_code == 200
        clock.advance(1 + ttl_cache.TTL_SECONDS)
        assert (await served.http.get("/jobs")).status_code == 401


async def test_failed_sign_ins_are_rate_limited(served_on_sqlite: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served = served_on_sqlite
    monkeypatch.setattr(rate_limit, "FAILURES_MAX", 3)
    _, good = await served.engine.keys.create(NewKey())
    wrong = text_of(Kind.CLIENT, "0" * 16, "0" * 64)
    tried = [await sign_in(served, key) for key in (wrong, "gibberish", wrong, wrong)]
    assert [answer.status_code for answer in tried] == [401, 401, 401, 429]
    assert "set-cookie" not in tried[0].headers
    assert (await sign_in(served, good)).status_code == 201, "a right key is let in whatever others do"


async def test_signing_in_counts_as_a_request_of_the_key(served_on_sqlite: Served) -> None:
    _, text = await served_on_sqlite.engine.keys.create(NewKey(rate_per_second=1))
    tried = [(await sign_in(served_on_sqlite, text)).status_code for _ in range(3)]
    assert tried[0] == 201
    assert 429 in tried, "nobody fills the table of sessions with one key"


async def test_worker_keys_and_cross_origin_pages_cannot_sign_in(served_on_sqlite: Served) -> None:
    served = served_on_sqlite
    worker = await served.engine.workers.register(name="w")
    _, text = await served.engine.keys.create(NewKey(kind=Kind.WORKER, worker_id=worker.id))
    assert (await sign_in(served, text)).status_code == 403
    _, good = await served.engine.keys.create(NewKey())
    foreign = await sign_in(served, good, **{"Sec-Fetch-Site": "cross-site"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "cross_origin_forbidden")


async def test_an_expired_cookie_is_ignored(served_on_sqlite: Served) -> None:
    """Browsers send one of another server on this machine too, whatever its port."""
    stale = {"Cookie": f"holdfast_session={'0' * 64}"}
    assert (await served_on_sqlite.http.get("/jobs", headers=stale)).status_code == 200
    assert (await served_on_sqlite.http.get("/api/admin/jobs", headers=stale)).status_code == 401
