"""The library: the images of a user, how they are found, marked, downloaded and deleted."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.worker.in_process import until
from tests.workloads.generation.steps import ON_SQLITE, Service, Sets

PROMPTS = ("A Café  in \uff30aris", "a lighthouse at night", "100% of a_b", "100 of axb", "STRASSE! straße")


async def filled(service: Service, *prompts: str, **more: Any) -> list[dict[str, Any]]:
    """The assets of these prompts, which are made one after the other."""
    accepted = [await service.accepted(prompt, **more) for prompt in prompts]
    async with service.working(concurrency=1):
        made = [await service.ended(each["generationId"]) for each in accepted]
        await until(lambda: len(service.files("thumbnails/")) == sum(len(each["assets"]) for each in made))
        await until(lambda: thumbnails_are_linked(service))
    return [asset for each in made for asset in each["assets"]]


async def thumbnails_are_linked(service: Service) -> bool:
    return all("thumbnailUrl" in each for each in (await service.get("/assets"))["assets"])


async def found(service: Service, **query: Any) -> list[str]:
    """Their prompts."""
    return [each["prompt"] for each in (await service.get("/assets", **query))["assets"]]


async def change(service: Service, asset: dict[str, Any], **body: Any) -> dict[str, Any]:
    answer = await service.ask("PATCH", f"/assets/{asset['assetId']}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_library_has_every_image(service: Service) -> None:
    """R004-17"""
    made = await filled(service, "one", "two", count=2)
    page = await service.get("/assets")
    listed = page["assets"]
    assert page["nextCursor"] is None
    assert {each["assetId"] for each in listed} == {each["assetId"] for each in made}
    assert [each["prompt"] for each in listed] == ["two", "two", "one", "one"]
    for asset in listed:
        assert (asset["favorite"], asset["tags"]) == (False, [])
        assert await service.get(f"/assets/{asset['assetId']}") == asset
        generation = await service.generation(asset["generationId"])
        assert asset["assetId"] in {each["assetId"] for each in generation["assets"]}
        assert {"favorite", "tags"}.isdisjoint(generation["assets"][0])


@ON_SQLITE
async def test_pages_of_the_library(service: Service) -> None:
    await filled(service, "one", "two", count=2)
    found: list[str] = []
    cursor, page = dict[str, str](), dict[str, Any]()
    for expected in (3, 1):
        page = await service.get("/assets", limit=3, **cursor)
        assert len(page["assets"]) == expected
        found += [each["assetId"] for each in page["assets"]]
        cursor = {"cursor": page["nextCursor"]}
    assert page["nextCursor"] is None
    assert found == [each["assetId"] for each in (await service.get("/assets"))["assets"]]


# -- search --------------------------------------------------------------------------------------------------------


async def test_search(service: Service) -> None:
    """Words in their order, without case and accents; % and _ are themselves."""
    await filled(service, *PROMPTS)
    cafe, lighthouse, percent, plain, street = PROMPTS
    for search, expected in {
        "cafe": [cafe],
        "CAFÉ": [cafe],
        "cafe\u0301": [cafe],
        "paris": [cafe],
        "a cafe paris": [cafe],
        "paris cafe": [],
        "house": [lighthouse],
        "light night": [lighthouse],
        "night light": [],
        "100%": [percent],
        "a_b": [percent],
        "a%b": [],
        "%": [percent],
        "_": [percent],
        "100 of": [plain, percent],
        "!": [street],
        "!%": [],
        "strasse": [street],
        "straße straße": [street],
        "\\": [],
        "' OR '1'='1": [],
        "": [*reversed(PROMPTS)],
        "  ": [*reversed(PROMPTS)],
    }.items():
        assert await found(service, search=search) == expected, search
    assert await found(service, search="100 of", limit=1) == [plain]


@ON_SQLITE
async def test_a_search_that_is_too_long_is_422(service: Service) -> None:
    await service.get("/assets", search="x" * 200)
    assert (await service.refused("GET", "/assets", params={"search": "x" * 201}))[0] == 422


async def test_text_that_a_database_cannot_store_is_422(service: Service) -> None:
    for field in ("search", "tag"):
        for text in ("\0", "a\0b"):
            answer = await service.ask("GET", "/assets", params={field: text})
            assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, "invalid_field", field)
        await service.get(f"/assets?{field}=%ED%A0%80")  # bytes of a surrogate: decoded as replacement characters
    [asset] = await filled(service, "one")
    for text in (r"a\u0000b", r"\ud800", r"a\udfffb"):
        path, content = f"/assets/{asset['assetId']}", f'{{"tags": ["{text}"]}}'
        answer = await service.ask("PATCH", path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["code"] != "value_refused"
    assert (await service.get("/assets/tags"))["tags"] == []


# -- favorites and tags --------------------------------------------------------------------------------------------


async def test_favorites(service: Service) -> None:
    first, second = await filled(service, "one", "two")
    assert (await change(service, first, favorite=True))["favorite"] is True
    assert await found(service, favorite="true") == ["one"]
    assert await found(service, favorite="false") == ["two", "one"]
    changed = await change(service, first, tags=["x"])
    assert (changed["favorite"], changed["tags"]) == (True, ["x"]), "what is not named stays"
    await change(service, first, favorite=False)
    await change(service, second, favorite=True)
    assert await found(service, favorite="true") == ["two"]


async def test_tags(service: Service) -> None:
    first, second = await filled(service, "one", "two")
    changed = await change(service, first, tags=["Night", "  the   sea ", "night", "", "Cafe\u0301"])
    assert changed["tags"] == ["café", "night", "the sea"]
    await change(service, second, tags=["NIGHT"])
    assert (await service.get("/assets/tags"))["tags"] == [
        {"tag": "café", "assets": 1},
        {"tag": "night", "assets": 2},
        {"tag": "the sea", "assets": 1},
    ]
    assert await found(service, tag="night") == ["two", "one"]
    assert await found(service, tag="The  Sea") == ["one"]
    assert await found(service, tag="nigh") == []
    assert await found(service, tag="night", search="one") == ["one"]
    assert await found(service, tag="night", favorite="true") == []
    assert (await change(service, first, tags=["x"]))["tags"] == ["x"], "they are replaced"
    assert (await change(service, first, favorite=True))["tags"] == ["x"]
    assert (await change(service, first, tags=[]))["tags"] == []
    assert (await service.get("/assets/tags"))["tags"] == [{"tag": "night", "assets": 1}]


async def test_favorites_and_tags_are_searched_in_pages(service: Service) -> None:
    made = await filled(service, "a red fox", "a red hen", "a blue fox", "a red cat", "a red dog")
    for asset, is_favorite in zip(made, (True, True, True, False, True), strict=True):
        await change(service, asset, favorite=is_favorite, tags=["farm", f"only {asset['prompt']}"])
    assert await found(service, favorite="true", search="red") == ["a red dog", "a red hen", "a red fox"]
    assert await found(service, tag="farm", search="red") == ["a red dog", "a red cat", "a red hen", "a red fox"]
    assert await found(service, tag="farm", search="red", favorite="true") == ["a red dog", "a red hen", "a red fox"]
    assert await found(service, tag="only a red cat", favorite="true") == []
    for query in ({"favorite": "true"}, {"tag": "farm", "favorite": "true"}, {"tag": "farm"}):
        first = await service.get("/assets", search="red", limit=2, **query)
        rest = await service.get("/assets", search="red", limit=2, cursor=first["nextCursor"], **query)
        paged = [each["prompt"] for each in first["assets"] + rest["assets"]]
        assert paged == await found(service, search="red", **query)
        assert rest["nextCursor"] is None


INVALID: list[Any] = [
    {"tags": ["x" * 51]},
    {"tags": [f"tag {n}" for n in range(21)]},
    {"tags": ["a\0b"]},
    {"tags": ["a\u200bb"]},
    {"tags": [7]},
    {"tags": "night"},
    {"favorite": "yes"},
    {"favorite": 1},
    {"prompt": "another"},
    {"assetId": "x"},
    [],
]


@ON_SQLITE
async def test_an_invalid_change_is_422_and_changes_nothing(service: Service) -> None:
    [asset] = await filled(service, "one")
    before = await change(service, asset, tags=["kept"])
    for body in INVALID:
        answer = await service.ask("PATCH", f"/assets/{asset['assetId']}", json=body)
        assert answer.status_code == 422, (body, answer.text)
        assert await service.get(f"/assets/{asset['assetId']}") == before


@ON_SQLITE
async def test_the_most_tags_that_an_image_may_have(service: Service) -> None:
    [asset] = await filled(service, "one")
    wanted = sorted(["x" * 50, *(f"tag {n}" for n in range(19))])
    assert (await change(service, asset, tags=wanted))["tags"] == wanted
    assert (await change(service, asset))["tags"] == wanted, "an empty change"


# -- delete --------------------------------------------------------------------------------------------------------


async def test_a_deleted_image_is_gone_with_its_files(service: Service) -> None:
    first, second = await filled(service, "one", "two")
    await change(service, first, tags=["x"], favorite=True)
    shown = await service.get(f"/assets/{first['assetId']}")
    path = f"/assets/{first['assetId']}"
    answer = await service.ask("DELETE", path)
    assert (answer.status_code, answer.content) == (204, b"")

    gone = (404, "asset_not_found")
    for method, each in (
        ("GET", path),
        ("DELETE", path),
        ("GET", f"{path}/file"),
        ("GET", shown["url"]),
        ("GET", shown["thumbnailUrl"]),
    ):
        assert await service.refused(method, each) == gone, each
    assert await service.refused("PATCH", path, json={"favorite": False}) == gone
    assert await found(service) == ["two"]
    assert (await service.get("/assets/tags"))["tags"] == []
    assert (await service.generation(first["generationId"]))["assets"] == []
    assert len(service.files("originals/")) == 2, "its files are deleted by a job"
    async with service.working():
        await until(lambda: len(service.files()) == 2)
    for url in (second["url"], (await service.get(f"/assets/{second['assetId']}"))["thumbnailUrl"]):
        assert (await service.http.get(url)).status_code == 200


async def test_a_generation_without_its_images_stays_charged(service: Service) -> None:
    [asset] = await filled(service, "one")
    await service.ask("DELETE", f"/assets/{asset['assetId']}")
    generation = await service.generation(asset["generationId"])
    assert (generation["status"], generation["creditsCharged"]) == ("completed", 1)
    assert "resultUrl" not in generation
    assert await service.credits() == (99, 0, 99)


# -- signed URLs ---------------------------------------------------------------------------------------------------


async def test_signed_urls_need_no_key_and_expire(service: Service, generation_settings: Sets) -> None:
    """R004-18: signed when they are read."""
    generation_settings(url_seconds=60)
    alice = await service.user("alice")
    [asset] = await filled(alice, "one")
    shown = await alice.get(f"/assets/{asset['assetId']}")
    for url in (shown["url"], shown["thumbnailUrl"]):
        assert (await service.http.get(url)).status_code == 200
        assert (await service.http.get(f"{url}&utm_source=x")).status_code == 200
    service.clock.advance(59)
    assert (await service.http.get(shown["url"])).status_code == 200
    service.clock.advance(1)
    expired = await service.http.get(shown["url"])
    assert (expired.status_code, expired.json()["code"]) == (403, "signature_expired")
    later = (await alice.get(f"/assets/{asset['assetId']}"))["url"]
    assert (await service.http.get(later)).status_code == 200


def token_in(url: str) -> str:
    return parse_qs(urlsplit(url).query)["token"][0]


async def test_a_token_is_for_one_image(service: Service) -> None:
    first, second = await filled(service, "one", "two")
    shown = await service.get(f"/assets/{first['assetId']}")
    token = token_in(shown["url"])
    changed = token[:-1] + ("0" if token[-1] != "0" else "1")
    later = token.replace(token.split(".")[1], str(int(token.split(".")[1]) + 1))
    file = f"/assets/{first['assetId']}/file/signed"
    for path, used in (
        (f"/assets/{second['assetId']}/file/signed", token),
        (f"/assets/{first['assetId']}/thumbnail/signed", token),
        (file, token_in(shown["thumbnailUrl"])),
        (file, changed),
        (file, later),
        (file, ""),
        (file, "x" * 5000),
    ):
        answer = await service.http.get(path, params={"token": used})
        assert (answer.status_code, answer.json()["code"]) == (403, "invalid_signature"), path
    assert (await service.http.get(file, params={"token": token})).status_code == 200
    assert (await service.http.get(file)).status_code == 403


# -- downloads -----------------------------------------------------------------------------------------------------


async def test_downloads_have_ranges_and_tags(service: Service) -> None:
    [asset] = await filled(service, "one")
    for url in (asset["url"], f"/assets/{asset['assetId']}/file"):
        whole = await service.http.get(url)
        data = whole.content
        assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
        assert len(data) == asset["bytes"]
        assert whole.headers["cache-control"].startswith("private")
        assert whole.headers["x-content-type-options"] == "nosniff"
        tag = whole.headers["etag"]
        assert (await service.http.get(url, headers={"If-None-Match": tag})).status_code == 304
        part = await service.http.get(url, headers={"Range": "bytes=2-9"})
        assert (part.status_code, part.content) == (206, data[2:10])
        assert part.headers["content-range"] == f"bytes 2-9/{len(data)}"
        assert (await service.http.get(url, headers={"Range": "bytes=-5"})).content == data[-5:]
        assert (await service.http.get(url, headers={"Range": f"bytes={len(data)}-"})).status_code == 416
        stale = {"Range": "bytes=2-9", "If-Range": '"another"'}
        assert (await service.http.get(url, headers=stale)).content == data
        head = await service.http.head(url)
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(data)), b"")


async def test_an_image_has_a_thumbnail(service: Service) -> None:
    accepted = await service.accepted(width=600, height=300)
    async with service.working():
        made = await service.ended(accepted["generationId"])
        await until(lambda: thumbnails_are_linked(service))
    [asset] = (await service.get("/assets"))["assets"]
    assert asset["assetId"] == made["assets"][0]["assetId"]
    answers: list[httpx2.Response] = [
        await service.http.get(asset["thumbnailUrl"]),
        await service.http.get(f"/assets/{asset['assetId']}/thumbnail"),
    ]
    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
        assert answer.headers["etag"] != (await service.http.get(asset["url"])).headers["etag"]
    assert answers[0].content == answers[1].content
    assert len(answers[0].content) < asset["bytes"]


@ON_SQLITE
async def test_other_files_than_those_are_404(service: Service) -> None:
    made = await service.made()
    id_ = made["assets"][0]["assetId"]
    for kind in ("original", "x" * 300, "storage_key"):
        assert await service.refused("GET", f"/assets/{id_}/{kind}") == (404, "file_not_found")


@ON_SQLITE
async def test_an_image_whose_file_is_lost_is_404(service: Service) -> None:
    [asset] = await filled(service, "one")
    (service.folder / service.files("originals/")[0]).unlink()
    assert await service.refused("GET", f"/assets/{asset['assetId']}/file") == (404, "file_not_found")
    assert await service.refused("GET", asset["url"]) == (404, "file_not_found")
    assert (await service.ask("DELETE", f"/assets/{asset['assetId']}")).status_code == 204
    async with service.working():
        await until(lambda: service.files() == [])


async def test_changes_of_one_image_at_once(service: Service) -> None:
    """Also while it is deleted: a later change finds nothing."""
    first, second = await filled(service, "one", "two")
    path = f"/assets/{first['assetId']}"
    changes = [service.ask("PATCH", path, json={"tags": ["a", "b"]}) for _ in range(10)]
    assert {answer.status_code for answer in await asyncio.gather(*changes)} == {200}
    path = f"/assets/{second['assetId']}"
    mixed = [service.ask("PATCH", path, json={"tags": ["a", "b"]}) for _ in range(10)]
    mixed[5:5] = [service.ask("DELETE", path) for _ in range(3)]
    statuses = [answer.status_code for answer in await asyncio.gather(*mixed)]
    assert statuses.count(204) == 1
    assert set(statuses) <= {200, 204, 404}
