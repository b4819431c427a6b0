"""`holdfast workers`: registering, listing and switching them off and on."""

from pathlib import Path

from holdfast.engine import Engine
from tests.cli.conftest import Holdfast, Meanwhile
from tests.cli.sample_jobs import claimed


def test_a_registered_worker_is_listed_with_what_it_offers(holdfast: Holdfast) -> None:
    registered = holdfast(
        *("workers", "register", "--name", "encoder-1", "--kind", "video", "--slots", "4"),
        *("--capability", "gpu", "--capability", "codecs=h264,vp9"),
    )
    worker_id, key = registered.out.splitlines()
    assert key.startswith("holdfast_worker_")
    [row] = holdfast("workers", "list").rows
    assert row == [
        *(worker_id, "encoder-1", "video", "active", "0", "4", row[6], "", ""),
        "codecs, codecs:h264, codecs:vp9, gpu",
        "no claim yet",
    ]
    [worker] = holdfast("workers", "list", "--json").json["workers"]
    assert (worker["workerId"], worker["status"], worker["holds"]) == (worker_id, "active", 0)
    assert worker["capabilities"] == {"gpu": True, "codecs": ["h264", "vp9"]}


def test_the_list_says_how_many_jobs_each_holds(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    worker, _ = meanwhile(claimed)
    [found] = holdfast("workers", "list", "--json").json["workers"]
    assert (found["workerId"], found["holds"]) == (worker, 1)


def test_the_list_says_which_types_of_jobs_a_worker_runs(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    meanwhile(lambda engine: engine.workers.register(metadata={"jobTypes": ["film", "mail"]}))
    assert holdfast("workers", "list").rows[0][-1] == "film, mail"
    assert holdfast("workers", "list", "--json").json["workers"][0]["jobTypes"] == ["film", "mail"]


def test_a_worker_is_disabled_and_enabled_by_name_or_id(holdfast: Holdfast) -> None:
    worker_id, _ = holdfast("workers", "register", "--name", "encoder-1").out.splitlines()
    assert holdfast("workers", "disable", "encoder-1").out == "worker encoder-1 is disabled\n"
    assert holdfast("workers", "list").rows[0][3] == "disabled"
    assert holdfast("workers", "enable", worker_id, "--json").json["enabled"] is True


def test_an_unknown_worker_exits_with_3_and_an_ambiguous_name_with_4(holdfast: Holdfast, meanwhile: Meanwhile) -> None:
    gone = holdfast("workers", "disable", "nobody")
    assert (gone.code, gone.err) == (3, "holdfast: no worker 'nobody'; see `holdfast workers list`\n")

    async def twins(engine: Engine) -> None:
        await engine.workers.register(name="twin")
        await engine.workers.register(name="twin")

    meanwhile(twins)
    both = holdfast("workers", "disable", "twin")
    assert both.code == 4
    assert "2 workers have the name 'twin'; use an id: " in both.err


def test_a_worker_is_registered_with_a_key_limited_to_its_queues(
    holdfast: Holdfast, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    typed = ("--name", "mailer", "--queues", "mail,sms", "--tenants", "acme", "--key-file", "mailer.key")
    said = holdfast("workers", "register", *typed)
    [key] = holdfast("keys", "list", "--json").json["keys"]
    [worker] = meanwhile(lambda engine: engine.workers.all())
    assert said.out == f"{worker.id}\n"
    assert worker.tenants == ["acme"]
    assert (key["workerId"], key["queues"], key["scopes"]) == (worker.id, ["mail", "sms"], ["work"])
    path = tmp_path / "mailer.key"
    assert path.read_text().startswith(f"holdfast_worker_{key['keyId']}_")
    assert path.stat().st_mode & 0o777 == 0o600


def test_json_contains_the_key_of_a_worker(holdfast: Holdfast) -> None:
    assert holdfast("workers", "register", "--json").json["apiKey"].startswith("holdfast_worker_")


def test_a_revoked_worker_has_no_key_left(holdfast: Holdfast) -> None:
    """R003-98."""
    holdfast("workers", "register", "--name", "encoder-1")
    assert holdfast("workers", "revoke", "encoder-1").out == "1 key of worker encoder-1 revoked\n"
    assert holdfast("keys", "list", "--json").json["keys"][0]["status"] == "revoked"
    assert holdfast("workers", "revoke", "encoder-1", "--json").json["revokedKeys"] == []
    assert holdfast("workers", "revoke", "nobody").code == 3


def test_a_capability_without_a_name_is_a_usage_error(holdfast: Holdfast) -> None:
    answer = holdfast("workers", "register", "--capability", "=x")
    assert answer.code == 2
    assert "must be 1 to 200 printable characters" in answer.err
