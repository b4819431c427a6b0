"""What is wrong in the settings of the service is found when a process starts."""

from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.extension_settings import SettingsSection
from holdfast.settings import load_section
from holdfast.workloads.generation.checks import plug_ins_are_installed
from holdfast.workloads.generation.manifest import manifest
from holdfast.workloads.generation.settings import Settings
from tests.worker.in_process import until
from tests.workloads.generation.steps import ON_SQLITE, Service, Sets


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
        ({"blocklist_file": "/none"}, "HOLDFAST_GENERATION_BLOCKLIST_FILE: /none cannot be read"),
        ({"allowlist_file": "/none"}, "HOLDFAST_GENERATION_ALLOWLIST_FILE: /none cannot be read"),
        ({"blocked_images_file": "/none"}, "HOLDFAST_GENERATION_BLOCKED_IMAGES_FILE: /none cannot be read"),
        ({"cost": "-1"}, "HOLDFAST_GENERATION_COST"),
    ],
)
def test_a_setting_that_cannot_work_is_an_error(settings: dict[str, str], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read(**settings)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("blocklist_file", "one\n/(/\n", ":2: the pattern is invalid"),
        ("allowlist_file", "/a/\n", ":1: a pattern cannot be allowed"),
        ("blocked_images_file", "abc\n", ":1: neither a SHA-256 digest"),
    ],
)
def test_a_list_that_is_invalid_is_an_error_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(text)
    with pytest.raises(Invalid, match=f"HOLDFAST_GENERATION_{name.upper()}: .*list.txt{message}"):
        read(**{name: str(file)})


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
