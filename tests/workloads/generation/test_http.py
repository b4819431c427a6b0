"""`POST /generations`: what a request may say, and what is returned for it."""

import hashlib
import io
import json
from typing import Any

from PIL import Image

from tests.workloads.generation.steps import ON_SQLITE, SMALL, Service

JSON = {"content-type": "application/json"}


async def test_a_generation_is_made(service: Service) -> None:
    """R004-1, R004-3, R004-4, R004-8, R004-12, R004-13, R004-16, R004-17, R004-18: from the request to the image."""
    answer = await service.create("a lighthouse", width=96, height=64, count=2)
    accepted = answer.json()
    assert answer.status_code == 202, answer.text
    id_ = accepted["generationId"]
    assert accepted == {"generationId": id_, "jobId": accepted["jobId"], "status": "queued", "creditsReserved": 2}
    assert answer.headers["location"] == f"/generations/{id_}"
    waiting = await service.generation(id_)
    assert (waiting["status"], waiting["assets"], waiting["creditsReserved"]) == ("queued", [], 2)
    assert "startedAt" not in waiting
    assert await service.credits() == (100, 2, 98)

    async with service.working():
        made = await service.ended(id_)

    assert made["status"] == "completed", made
    expected = {"generationId": id_, "jobId": accepted["jobId"], "prompt": "a lighthouse", "provider": "local"}
    expected |= {"width": 96, "height": 64, "count": 2, "creditsReserved": 0, "creditsCharged": 2, "retryCount": 0}
    assert expected.items() <= made.items()
    assert made["startedAt"] == made["finishedAt"] == made["createdAt"], "the clock stands still"
    assert "error" not in made
    assert made["resultUrl"] == made["assets"][0]["url"]
    assert [asset["seed"] for asset in made["assets"]] == [made["seed"], made["seed"] + 1]
    for asset in made["assets"]:
        image = await service.http.get(asset["url"])
        assert (image.status_code, image.headers["content-type"]) == (200, asset["contentType"])
        assert (len(image.content), hashlib.sha256(image.content).hexdigest()) == (asset["bytes"], asset["sha256"])
        with Image.open(io.BytesIO(image.content)) as decoded:
            assert (decoded.format, decoded.size) == ("PNG", (96, 64))
            assert (asset["contentType"], asset["width"], asset["height"]) == ("image/png", 96, 64)
    assert await service.credits() == (98, 0, 98)
    assert await service.statement() == [("grant", 100), ("reserve", 2), ("commit", 2)]
    assert len(service.files("originals/")) == 2


async def test_a_prompt_is_enough(service: Service) -> None:
    answer = await service.ask("POST", "/generations", json={"prompt": "a lighthouse"})
    assert answer.status_code == 202, answer.text
    generation = await service.generation(answer.json()["generationId"])
    assert {"width": 1024, "height": 1024, "count": 1, "provider": "local"}.items() <= generation.items()
    assert generation.keys().isdisjoint({"negativePrompt", "style", "error", "resultUrl"})


async def test_all_fields_are_returned(service: Service) -> None:
    body = {"negativePrompt": "people", "width": 64, "height": 128, "count": 3, "seed": 7, "style": "watercolor"}
    accepted = await service.accepted("a lighthouse", provider="local", **body)
    generation = await service.generation(accepted["generationId"])
    assert {**body, "prompt": "a lighthouse", "provider": "local"}.items() <= generation.items()
    assert accepted["creditsReserved"] == 3


async def test_a_seed_that_is_given_is_returned_and_another_one_is_random(service: Service) -> None:
    seeds = [(await service.generation((await service.accepted(f"{n}"))["generationId"]))["seed"] for n in range(4)]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**32 for seed in seeds)
    for seed in (0, 2**32 - 1):
        accepted = await service.accepted(seed=seed)
        assert (await service.generation(accepted["generationId"]))["seed"] == seed


async def test_a_random_seed_is_that_of_the_image(service: Service) -> None:
    """The same prompt, size and seed are the same bytes."""
    first = await service.made()
    again = await service.made(seed=first["seed"])
    other = await service.made(seed=first["seed"] + 1)
    digests = [each["assets"][0]["sha256"] for each in (first, again, other)]
    assert digests[0] == digests[1] != digests[2]


@ON_SQLITE
async def test_limits_are_inclusive(service: Service) -> None:
    for fields in ({"width": 64, "height": 2048}, {"width": 2048, "height": 64}, {"count": 1}, {"count": 4}):
        await service.accepted(**fields)
    await service.accepted("x" * 4000, style="y" * 100)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"width": 63}, "width"),
    ({"width": 2049}, "width"),
    ({"height": 63}, "height"),
    ({"height": 2049}, "height"),
    ({"height": "64"}, "height"),
    ({"width": 64.5}, "width"),
    ({"width": None}, "width"),
    ({"count": 0}, "count"),
    ({"count": 5}, "count"),
    ({"count": True}, "count"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**32}, "seed"),
    ({"seed": 2**70}, "seed"),
    ({"seed": "7"}, "seed"),
    ({"provider": "openai"}, "provider"),
    ({"provider": "nobody"}, "provider"),
    ({"provider": ""}, "provider"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": " \t\n"}, "prompt"),
    ({"prompt": "\u2003\u00a0"}, "prompt"),
    ({"prompt": "a\0b"}, "prompt"),
    ({"prompt": 7}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": "x" * 4001}, "prompt"),
    ({"negativePrompt": "x" * 4001}, "negativePrompt"),
    ({"style": "x" * 101}, "style"),
    ({"user": "alice"}, "user"),
    ({"model": "x"}, "model"),
]


@ON_SQLITE
async def test_an_invalid_field_is_422_and_leaves_nothing(service: Service) -> None:
    before = service.rows()
    for body, field in INVALID:
        content = json.dumps({"prompt": "a lighthouse", **SMALL, **body})
        answer = await service.ask("POST", "/generations", content=content, headers=JSON)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem.get("field")) == (422, "invalid_field", field), problem
        assert answer.headers["content-type"] == "application/problem+json"
        assert service.rows() == before


@ON_SQLITE
async def test_malformed_json_is_400(service: Service) -> None:
    before = service.rows()
    for text in ("", "{", '{"prompt": "a"', "nonsense", '{"prompt": "\\ud800"}', b"\xff\xfe"):
        answer = await service.ask("POST", "/generations", content=text, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "malformed_json"), text
    assert service.rows() == before


@ON_SQLITE
async def test_a_body_that_is_no_object_is_422(service: Service) -> None:
    for body in ([], "a lighthouse", 7, {}):
        answer = await service.ask("POST", "/generations", json=body)
        assert answer.status_code == 422, answer.text


@ON_SQLITE
async def test_field_names_have_two_spellings(service: Service) -> None:
    first = await service.accepted(negativePrompt="people")
    assert await service.accepted(negative_prompt="people") == first
    assert (await service.generation(first["generationId"]))["negativePrompt"] == "people"
    assert await service.rejected(negativePrompt="a", negative_prompt="b") == (400, "conflicting_input")


@ON_SQLITE
async def test_a_body_above_the_limit_is_413(service: Service) -> None:
    answer = await service.ask("POST", "/generations", json={"prompt": "x" * 1_100_000})
    assert answer.status_code == 413


@ON_SQLITE
async def test_a_prompt_is_kept_as_it_is(service: Service) -> None:
    for text in ("a \U0001f3ee by the sea", "un café près d'Orléans", "灯台", "مناره", "%_!'\";--"):
        accepted = await service.accepted(text)
        assert (await service.generation(accepted["generationId"]))["prompt"] == text
