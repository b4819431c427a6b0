"""Rate limits and limits on failed logins."""

import asyncio

import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError, TooMany
from holdfast.model.key import Kind, NewKey, Scope, text_of
from holdfast.server.auth import rate_limit
from holdfast.server.auth.authenticator import Authenticator, Caller
from holdfast.server.auth.rate_limit import FAILURES_MAX, FAILURES_SECONDS, FailedLogins, RateLimit, source_of
from tests.server.steps import ADMIN, SECRET, bearer, serving
from tests.server.test_auth import LOCAL, WholeClock, with_key, with_secret


@pytest.fixture
def clock() -> WholeClock:
    return WholeClock()


def taken(rates: RateLimit, caller: str, per_second: float, tries: int) -> int:
    """How many of so many tries get through."""
    count = 0
    for _ in range(tries):
        try:
            rates.take(caller, per_second)
            count += 1
        except TooMany:
            continue
    return count


def test_the_rate_limit_allows_a_burst_of_one_second(clock: WholeClock) -> None:
    rates = RateLimit(clock)
    assert taken(rates, "a", 10, tries=50) == 10
    clock.advance(0.5)
    assert taken(rates, "a", 10, tries=50) == 5
    clock.advance(3600)
    assert taken(rates, "a", 10, tries=50) == 10
    assert taken(rates, "b", 10, tries=50) == 10, "each has a rate of its own"


def test_a_rate_below_one_per_second_allows_single_requests(clock: WholeClock) -> None:
    rates = RateLimit(clock)
    assert taken(rates, "a", 0.1, tries=5) == 1
    clock.advance(9)
    assert taken(rates, "a", 0.1, tries=5) == 0
    clock.advance(1)
    assert taken(rates, "a", 0.1, tries=5) == 1


@pytest.mark.parametrize("per_second", [0.1, 1, 3, 1000])
def test_a_request_after_retry_after_is_accepted(clock: WholeClock, per_second: float) -> None:
    rates = RateLimit(clock)
    for _ in range(3):
        taken(rates, "a", per_second, tries=2000)
        with pytest.raises(TooMany) as refused:
            rates.take("a", per_second)
        clock.advance(refused.value.retry_after)
        rates.take("a", per_second)


def test_the_memory_of_rates_is_bounded(clock: WholeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "ENTRIES_MAX", 10)
    rates = RateLimit(clock)
    for number in range(100):
        rates.take(f"{number}", 1)
    assert len(rates._due) == 10


def test_the_memory_of_failed_logins_is_bounded(clock: WholeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-7: and whoever goes on failing is not forgotten among the many names he invents."""
    monkeypatch.setattr(rate_limit, "ENTRIES_MAX", 10)
    failures = FailedLogins(clock)
    for number in range(100):
        failures.add("192.0.2.1", f"key {number}")
    assert len(failures._seen) == 10
    with pytest.raises(TooMany):
        failures.check("192.0.2.1")


def test_old_failed_logins_are_not_counted(clock: WholeClock) -> None:
    failures = FailedLogins(clock)
    for _ in range(FAILURES_MAX - 1):
        failures.add("a")
    clock.advance(FAILURES_SECONDS)
    failures.add("a")
    failures.check("a", "b")
    for _ in range(FAILURES_MAX - 1):
        failures.add("a")
    with pytest.raises(TooMany) as refused:
        failures.check("b", "a")
    assert (refused.value.code, refused.value.retry_after) == ("too_many_failures", FAILURES_SECONDS)
    clock.advance(FAILURES_SECONDS)
    failures.check("a")


def test_all_addresses_of_one_ipv6_network_are_one_source() -> None:
    assert source_of("2001:db8:1:2::1") == source_of("2001:db8:1:2:ffff::9") != source_of("2001:db8:1:3::1")
    assert source_of("192.0.2.1") == "192.0.2.1"
    assert source_of("fe80::1%eth0") == source_of("fe80::2")
    assert source_of("not:an:address") == "not:an:address"
    assert source_of("") == ""


async def test_most_of_a_thousand_wrong_keys_are_blocked_and_the_right_one_is_accepted(fresh_sqlite_url: str) -> None:
    """SEC-7: nobody is locked out by what others do at the same address, or with the same key's id."""
    async with serving(fresh_sqlite_url) as served:
        key, text = await served.engine.keys.create(NewKey())
        wrong = [text_of(Kind.CLIENT, key.id, f"{number:064x}") for number in range(500)]
        wrong += [text_of(Kind.CLIENT, f"{number:016x}", "0" * 64) for number in range(500)]

        async def knock(shown: str) -> tuple[int, str]:
            answer = await served.http.get("/jobs", headers=bearer(shown))
            if answer.status_code == 429:
                assert 1 <= int(answer.headers["retry-after"]) <= FAILURES_SECONDS
            return answer.status_code, answer.json().get("code", "")

        answers = [answer for some in range(0, 1000, 50) for answer in await gathered(knock, wrong[some : some + 50])]
        assert answers.count((401, "unauthorized")) == FAILURES_MAX
        assert answers.count((429, "too_many_failures")) == 1000 - FAILURES_MAX
        assert (await knock(text))[0] == 200
        assert (await served.http.post("/api/worker/register", json={}, headers=ADMIN)).status_code == 429


async def gathered(knock: object, shown: list[str]) -> list[tuple[int, str]]:
    return await asyncio.gather(*(knock(each) for each in shown))  # type: ignore[operator]


async def code_of(auth: Authenticator, headers: dict[bytes, bytes], source: str, scope: Scope = Scope.JOBS_READ) -> str:
    try:
        return (await auth.authenticate(headers, source, scope)).name
    except HoldfastError as refused:
        return refused.code


async def test_an_address_that_guesses_the_admin_secret_is_blocked(engine: Engine, clock: WholeClock) -> None:
    """SEC-7: not even when it is right at last; others are."""
    auth = Authenticator(engine, clock, admin_secret=SECRET, allow_local=False)
    guesses = [with_secret(f"guess {number}") for number in range(FAILURES_MAX)]
    assert {await code_of(auth, guess, "192.0.2.1", Scope.ADMIN_READ) for guess in guesses} == {"unauthorized"}
    assert await code_of(auth, with_secret(SECRET), "192.0.2.1", Scope.ADMIN_READ) == "too_many_failures"
    assert await code_of(auth, with_secret(SECRET), "192.0.2.2", Scope.ADMIN_READ) == "admin secret"
    clock.advance(FAILURES_SECONDS)
    assert await code_of(auth, with_secret(SECRET), "192.0.2.1", Scope.ADMIN_READ) == "admin secret"


async def test_guesses_of_one_key_are_counted_across_addresses(engine: Engine, clock: WholeClock) -> None:
    """SEC-7: per key id."""
    auth = Authenticator(engine, clock, admin_secret=SECRET, allow_local=False)
    key, text = await engine.keys.create(NewKey())
    codes = [
        await code_of(auth, with_key(text_of(Kind.CLIENT, key.id, f"{number:064x}")), f"192.0.2.{number}")
        for number in range(FAILURES_MAX + 5)
    ]
    assert codes == ["unauthorized"] * FAILURES_MAX + ["too_many_failures"] * 5
    assert await code_of(auth, with_key(text), "192.0.2.1") == key.id


async def test_a_key_uses_its_own_rate_or_the_default(engine: Engine, clock: WholeClock) -> None:
    auth = Authenticator(engine, clock, admin_secret=SECRET, allow_local=True, rate_per_second=2)
    assert [await code_of(auth, LOCAL, "") for _ in range(3)] == ["local"] * 2 + ["too_many_requests"]
    fast, fast_text = await engine.keys.create(NewKey(rate_per_second=4))
    plain, plain_text = await engine.keys.create(NewKey())
    assert [await code_of(auth, with_key(fast_text), "") for _ in range(5)] == [fast.id] * 4 + ["too_many_requests"]
    assert [await code_of(auth, with_key(plain_text), "") for _ in range(3)] == [plain.id] * 2 + ["too_many_requests"]
    clock.advance(1)
    assert await code_of(auth, with_key(fast_text), "") == fast.id


async def test_without_a_rate_there_is_no_limit(engine: Engine, clock: WholeClock) -> None:
    auth = Authenticator(engine, clock, admin_secret=SECRET, allow_local=True)
    for _ in range(500):
        assert isinstance(await auth.authenticate(LOCAL, "", Scope.JOBS_READ), Caller)


async def test_an_exceeded_rate_limit_is_429_with_retry_after(store_url: str) -> None:
    async with serving(store_url) as served:
        _, text = await served.engine.keys.create(NewKey(rate_per_second=0.001))
        answers = [await served.http.get("/jobs", headers=bearer(text)) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[1].json()["code"] == "too_many_requests"
        assert 1 < int(answers[1].headers["retry-after"]) <= 1000
