"""`holdfast workers`: registering, listing and switching them off and on."""

from holdfast.engine import Engine
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.stories import claimed


def test_a_registered_worker_is_listed_with_what_it_offers(holdfast: Holdfast) -> None:
    registered = holdfast(
        *("workers", "register", "--name", "encoder-1", "--kind", "video", "--slots", "4"),
        *("--capability", "gpu", "--capability", "codecs=h264,vp9"),
    )
    worker_id = registered.out.strip()
    [row] = holdfast("workers", "list").rows
    assert row == [
        *(worker_id, "encoder-1", "video", "active", "0", "4", "never", "codecs, codecs:h264, codecs:vp9, gpu"),
        "any type",
    ]
    [worker] = holdfast("workers", "list", "--json").json["workers"]
    assert (worker["workerId"], worker["status"], worker["holds"]) == (worker_id, "active", 0)
    assert worker["capabilities"] == {"gpu": True, "codecs": ["h264", "vp9"]}


def test_the_list_says_how_many_jobs_each_holds(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    worker, _ = meanwhile(claimed)
    [found] = holdfast("workers", "list", "--json").json["workers"]
    assert (found["workerId"], found["holds"]) == (worker, 1)


def test_the_list_says_which_types_of_jobs_a_worker_runs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: engine.register(metadata={"jobTypes": ["film", "mail"]}))
    assert holdfast("workers", "list").rows[0][-1] == "film, mail"
    assert holdfast("workers", "list", "--json").json["workers"][0]["jobTypes"] == ["film", "mail"]


def test_a_worker_is_switched_off_and_on_by_name_or_id(holdfast: Holdfast) -> None:
    worker_id = holdfast("workers", "register", "--name", "encoder-1").out.strip()
    assert holdfast("workers", "disable", "encoder-1").out == "worker encoder-1 is disabled\n"
    assert holdfast("workers", "list").rows[0][3] == "disabled"
    assert holdfast("workers", "enable", worker_id, "--json").json["enabled"] is True


def test_a_worker_that_is_not_there_is_exit_3_and_an_ambiguous_name_exit_4(
    holdfast: Holdfast, meanwhile: Meanwhile
) -> None:
    gone = holdfast("workers", "disable", "nobody")
    assert (gone.code, gone.err) == (3, "holdfast: no worker 'nobody'; `holdfast workers list` names them\n")

    async def twins(engine: Engine) -> None:
        await engine.register(name="twin")
        await engine.register(name="twin")

    meanwhile(twins)
    both = holdfast("workers", "disable", "twin")
    assert both.code == 4
    assert "2 workers are called 'twin'; say which: " in both.err


def test_a_capability_without_a_name_is_a_usage_error(holdfast: Holdfast) -> None:
    answer = holdfast("workers", "register", "--capability", "=x")
    assert answer.code == 2
    assert "capability must be 1 to 200 printable characters" in answer.err
