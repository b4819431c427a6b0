"""What is wrong in the settings of the service is found when a process starts."""

from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.extension_settings import SettingsSection
from holdfast.settings import load_section
from holdfast.workloads.generation import ext
from holdfast.workloads.generation.checks import plug_ins_are_installed
from holdfast.workloads.generation.manifest import manifest
from holdfast.workloads.generation.settings import Settings
from tests.cli.processes import holdfast
from tests.worker.in_process import until
from tests.workloads.generation.steps import ON_SQLITE, Service, Sets

APP = "holdfast.workloads.generation:app"


def read(**settings: str) -> Settings:
    section = SettingsSection("generation", Settings)
    environment = {f"HOLDFAST_GENERATION_{name.upper()}": value for name, value in settings.items()}
    found: Settings = load_section(section, environment)
    return found


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"provider": "openai"}, "set HOLDFAST_GENERATION_OPENAI_URL"),
        ({"provider": "poll"}, "set HOLDFAST_GENERATION_POLL_URL"),
        ({"openai_url": "api.example.com"}, "HOLDFAST_GENERATION_OPENAI_URL must be empty, or like https://"),
        ({"public_url": "https://a.example.com/?x"}, "HOLDFAST_GENERATION_PUBLIC_URL must be"),
        ({"timezone": "Berlin"}, "HOLDFAST_GENERATION_TIMEZONE 'Berlin' is no time zone"),
        ({"storage_url": "memory://"}, "HOLDFAST_GENERATION_STORAGE_URL is an unusable storage URL: each process"),
        ({"storage_url": "images"}, "the path is relative"),
        ({"access_key_id": "key"}, "are set together"),
        ({"webhook_secret": "short"}, "HOLDFAST_GENERATION_WEBHOOK_SECRET: a webhook secret must have 16 bytes"),
        ({"webhook_secret": "whsec_!"}, "HOLDFAST_GENERATION_WEBHOOK_SECRET: "),
        ({"allow_networks": "10.1.0.0/16, x"}, "HOLDFAST_GENERATION_ALLOW_NETWORKS: 'x' is not a network"),
        ({"cost": "-1"}, "HOLDFAST_GENERATION_COST"),
    ],
)
def test_a_setting_that_cannot_work_is_an_error(settings: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read(**settings)


UNUSABLE = {
    "https://user:pw@a.example.com/v1": "must not contain a user, password or fragment",
    "https://a.example.com:99999/v1": "it is malformed",
    "https://a.example.com:0/v1": "port 0 is invalid",
    "http://1.2.3/v1": "its host is neither a name nor an address",
    "https://a b.example.com/v1": "HOLDFAST_GENERATION_[A-Z]+_URL must be empty, or like https://",
    "https://ä.example.com/v1": "write other names as xn--",
    "https://-.example.com/v1": "its host is not a valid name",
}


@pytest.mark.parametrize("url", UNUSABLE)
@pytest.mark.parametrize("name", ["openai_url", "poll_url", "classifier_url"])
def test_an_address_that_cannot_be_requested_is_an_error(name: str, url: str) -> None:
    with pytest.raises(Invalid, match=UNUSABLE[url]) as error:
        read(**{name: url})
    assert f"HOLDFAST_GENERATION_{name.upper()}" in error.value.message


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/v1", "http://provider:1234", "https://[::1]/v1"])
def test_the_address_of_a_provider_may_be_private(url: str) -> None:
    assert read(openai_url=url, poll_url=url, classifier_url=url).providers == ("local", "openai", "poll")


def test_settings_that_work_are_read(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("# none\n")
    found = read(blocklist_file=str(words), webhook_secret="x" * 16, allow_networks="10.1.0.0/16,10.2.0.0/16 ")
    assert found.networks == ["10.1.0.0/16", "10.2.0.0/16"]
    assert found.providers == ("local",)
    assert read(poll_url="https://a.example.com/v1").providers == ("local", "poll")


def test_the_manifest_has_these_settings() -> None:
    assert manifest.settings is Settings


@ON_SQLITE
@pytest.mark.parametrize("name", ["classifier", "moderator"])
async def test_a_plug_in_that_is_not_installed_is_found_by_doctor(
    service: Service, generation_settings: Sets, name: str
) -> None:
    assert (await plug_ins_are_installed()).level == "ok"
    generation_settings(**{name: "unheard-of"})
    found = await plug_ins_are_installed()
    assert found.level == "fail"
    assert "unheard-of" in found.says


@ON_SQLITE
@pytest.mark.parametrize(
    ("name", "message"),
    [("classifier", "the prompt could not be checked"), ("moderator", "the image could not be checked")],
)
async def test_requests_wait_for_a_missing_plug_in(
    service: Service, generation_settings: Sets, name: str, message: str
) -> None:
    generation_settings(**{name: "unheard-of"})
    accepted = await service.accepted()

    async def has_failed() -> bool:
        return (await service.generation(accepted["generationId"]))["status"] == "failed"

    async with service.working():
        await until(has_failed)
    error = (await service.generation(accepted["generationId"]))["error"]
    assert error == {"code": f"{name}_unavailable", "message": message}


# -- what servers and workers check when they start --------------------------------------------------------------------


def broken(folder: Path, name: str) -> str:
    """A value of the setting that no process should start with."""
    value = "unheard-of"
    if name.endswith("_file"):
        file = folder / "list.txt"
        file.write_text({"blocklist_file": "one\n/(/", "allowlist_file": "/a/", "blocked_images_file": "abc"}[name])
        value = str(file)
    return value


def write_settings(folder: Path, name: str) -> None:
    value = broken(folder, name)
    (folder / "holdfast.toml").write_text(f"[generation]\n{name} = '{value}'\n")


BROKEN = {
    "blocklist_file": "list.txt:2: the pattern is invalid",
    "allowlist_file": "list.txt:1: a pattern cannot be allowed",
    "blocked_images_file": "list.txt:1: neither a SHA-256 digest",
    "moderator": "there is no moderator 'unheard-of'; installed: rules",
    "classifier": "there is no classifier 'unheard-of'; installed: openai",
}


@pytest.mark.parametrize("name", BROKEN)
async def test_servers_and_workers_do_not_start_with_what_is_broken(
    generation_settings: Sets, tmp_path: Path, name: str
) -> None:
    generation_settings(**{name: broken(tmp_path, name)})
    with pytest.raises(Invalid, match=f"HOLDFAST_GENERATION_{name.upper()}: .*{BROKEN[name]}"):
        await ext.start()


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",), ("dev", "--port", "0")])
@pytest.mark.parametrize("name", ["blocklist_file", "moderator"])
def test_the_command_says_what_is_broken(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    write_settings(tmp_path, name)
    ended = holdfast(*command, "--app", APP, folder=tmp_path)
    assert ended.returncode == 2, ended.stderr
    assert f"HOLDFAST_GENERATION_{name.upper()}: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [("jobs", "list"), ("queues", "pause", "generation"), ("credits", "show", "ann")])
def test_other_commands_work_with_a_broken_list(tmp_path: Path, command: tuple[str, ...]) -> None:
    write_settings(tmp_path, "blocklist_file")
    ended = holdfast(*command, "--app", APP, folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
