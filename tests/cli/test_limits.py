"""`holdfast limits`: what bounds the claims, and changing it at run time."""

import pytest

from holdfast.engine import Engine
from holdfast.engine.admin.limits import declare_limits
from holdfast.model import JobType, NewJob
from holdfast.model.limits import Limit
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.sample_jobs import claimed


async def declared(engine: Engine) -> None:
    await engine.store.write(lambda tx: declare_limits(tx, {"gpu": Limit.of(4), "type:crawl": Limit.of(rate="10/s")}))


async def claim_one(engine: Engine) -> None:
    worker = await engine.workers.register()
    assert len(await engine.claim(worker.id)) == 1


def test_limits_are_listed_with_units_in_use_and_who_set_them(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(declared)
    holdfast("limits", "set", "queue:mail", "--concurrency", "1", "--by", "alice")
    holdfast("limits", "set", "key:crawl", "--rate", "30/min")
    holdfast("limits", "set", "tenant:acme", "--weight", "3")
    holdfast("limits", "set", "gpu", "--concurrency", "2", "--by", "bob")
    meanwhile(lambda engine: claimed(engine, queue="mail"))
    assert holdfast("limits", "list").rows == [
        ["gpu", "2", "0", "", "", "", "set by bob, declared 4 at once"],
        ["key:crawl", "", "", "30/min", "1", "", "set by command line"],
        ["queue:mail", "1", "1", "", "", "", "set by alice"],
        ["tenant:acme", "", "", "", "", "3", "set"],
        ["type:crawl", "", "0", "10/s", "10", "", "declared"],
    ]


def test_the_list_in_json_has_stable_names(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(declared)
    holdfast("limits", "set", "type:crawl", "--concurrency", "4", "--by", "alice")
    _, crawl = holdfast("limits", "list", "--json").json["limits"]
    assert crawl.pop("updatedAt") is not None
    assert crawl == {
        "name": "type:crawl",
        "concurrency": 4,
        "rate": 10.0,
        "burst": 10.0,
        "weight": None,
        "used": 0,
        "declared": {"concurrency": None, "rate": 10.0, "burst": 10.0},
        "setBy": "alice",
    }


def test_a_set_limit_is_printed_as_it_is_in_force_now(holdfast: Holdfast) -> None:
    first = holdfast("limits", "set", "queue:mail", "--concurrency", "4", "--rate", "600/min", "--burst", "50")
    assert (first.code, first.out) == (0, "limit 'queue:mail': 4 at once, 10/s (burst 50)\n")
    assert holdfast("limits", "set", "queue:mail", "--rate", "2.5").out == (
        "limit 'queue:mail': 4 at once, 2.5/s (burst 50)\n"
    )
    assert holdfast("limits", "set", "queue:mail", "--concurrency", "none", "--json").json["concurrency"] is None
    last = holdfast("limits", "set", "queue:mail", "--rate", "none")
    assert (last.code, last.out) == (0, "there is no limit 'queue:mail' any more\n")
    assert holdfast("limits", "list", "--json").json == {"limits": []}


def test_reset_returns_to_what_the_app_declares(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(declared)
    holdfast("limits", "set", "gpu", "--concurrency", "none")
    assert holdfast("limits", "list").rows[0][-1] == "set by command line, declared 4 at once"
    assert holdfast("limits", "reset", "gpu").out == "limit 'gpu': 4 at once\n"
    assert holdfast("limits", "list").rows[0][-1] == "declared"
    holdfast("limits", "set", "tenant:acme", "--weight", "3")
    reset = holdfast("limits", "reset", "tenant:acme", "--json")
    assert (reset.code, reset.json["name"], reset.json["weight"]) == (0, "tenant:acme", None)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["set", "gpu"], 2, "nothing to set: give concurrency, rate, burst or weight"),
        (["set", "gpu", "--weight", "3"], 2, "only a tenant has a weight"),
        (["set", "tenant:a", "--weight", "0"], 2, "weight must be a whole number from 1 to 1000, got 0"),
        (["set", "gpu", "--concurrency", "many"], 2, "concurrency must be a whole number"),
        (["set", "gpu", "--rate", "5/x"], 2, 'rate must be a number a second up to 1,000,000, or text such as "10/s"'),
        (["set", "gpu", "--burst", "5"], 2, "burst needs a rate"),
        (["set", "team:a", "--rate", "1/s"], 2, "a limit is type:NAME, queue:NAME, tenant:NAME, key:TYPE"),
        (["set", "gpu", "--rate", "none"], 3, "there is no limit 'gpu'; holdfast limits list shows all"),
        (["reset", "gpu"], 3, "there is no limit 'gpu'; holdfast limits list shows all"),
        (["reset", "tenant:acme"], 3, "there is no limit 'tenant:acme'"),
    ],
)
def test_a_wrong_command_says_what_to_do(holdfast: Holdfast, arguments: list[str], code: int, message: str) -> None:
    answer = holdfast("limits", *arguments)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(f"holdfast: {message}")
    assert holdfast("limits", "list").out == ""


def test_a_limit_of_an_unknown_job_type_is_set_with_a_note(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: engine.job_types.declare(JobType(name="crawl")))
    for name in ("type:crawl", "key:crawl", "key:crawl example.com"):
        assert holdfast("limits", "set", name, "--rate", "1/s").err == ""
    note = "note: no app has declared job type 'crowl'; there are crawl\n"
    for name in ("type:crowl", "key:crowl example.com"):
        answer = holdfast("limits", "set", name, "--rate", "1/s")
        assert (answer.code, answer.err) == (0, note)


def test_changes_are_in_the_audit_log(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    holdfast("limits", "set", "queue:mail", "--rate", "1/s", "--by", "alice")
    holdfast("limits", "reset", "queue:mail")
    reset, was_set = meanwhile(lambda engine: engine.audit.page()).lines
    assert (was_set.actor, was_set.action, was_set.detail) == ("alice", "limit.set", {"rate": 1.0, "burst": 1.0})
    assert (reset.actor, reset.action, reset.subject) == ("command line", "limit.reset", "queue:mail")


def test_keys_and_units_of_a_created_job_are_stored_and_shown(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    options = ("--limit-key", "example.com", "--fairness-key", "acme", "--limit", "gpu=3", "--limit", "disk")
    created = holdfast("jobs", "create", "crawl", *options)
    assert created.code == 0, created.err
    shown = holdfast("jobs", "show", created.out.strip())
    assert "\nlimit key     example.com\nfairness key  acme\n" in shown.out
    job = holdfast("jobs", "show", created.out.strip(), "--json").json
    assert (job["limitKey"], job["fairnessKey"], "keyLane" in job) == ("example.com", "acme", False)
    holdfast("limits", "set", "gpu", "--concurrency", "4")
    meanwhile(claim_one)
    assert holdfast("limits", "list").rows[0][:3] == ["gpu", "4", "3"]


def test_units_that_are_no_number_are_a_usage_error(holdfast: Holdfast) -> None:
    answer = holdfast("jobs", "create", "crawl", "--limit", "gpu=many")
    assert answer.code == 2
    assert "'gpu=many' is not NAME or NAME=UNITS, such as gpu=3" in answer.err
    assert holdfast("jobs", "create", "crawl", "--limit", "a:b").code == 2


def test_a_job_without_keys_shows_none(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    created = meanwhile(lambda engine: engine.create(NewJob(type="a")))
    assert "limit key" not in holdfast("jobs", "show", created.id).out
