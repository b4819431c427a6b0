"""The HTTP API of the image service, on a real server with a real worker and its child processes."""

import hashlib
import io
import json
import secrets
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from PIL import Image

from holdfast.engine.maintenance.prune import Retention
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from holdfast.store.migrate import migrate
from holdfast.workloads.images import ext
from holdfast.workloads.images.jobs import sweep
from holdfast.workloads.images.lifecycle import IMAGES
from holdfast.workloads.images.service import app
from tests.conftest import with_database
from tests.server.steps import ADMIN, bearer, serving
from tests.server.test_metrics import scraped
from tests.worker.in_process import until
from tests.workloads.images.steps import Service, Sets, animation, images_working, picture

pytestmark = pytest.mark.sampled(18, of="images http")

DEFAULT = [f"w{width}.{form}" for width in (320, 800, 1600) for form in ("jpeg", "webp", "avif")]
SMALL = json.dumps([{"width": 16, "format": "webp"}])


async def get(service: Service, url: str, **headers: str) -> httpx2.Response:
    return await service.served.http.get(url, headers=headers)


async def test_an_upload_is_processed_to_the_default_variants(service: Service) -> None:
    data = picture(1000, 500)
    answer = await service.served.http.post("/images", content=data)
    accepted = answer.json()
    assert (answer.status_code, accepted["status"]) == (202, "queued")
    assert answer.headers["location"] == f"/images/{accepted['imageId']}"
    waiting = await service.image(accepted["imageId"])
    assert (waiting["status"], waiting["variants"], waiting["width"]) == ("queued", [], 1000)

    async with images_working():
        image = await service.ended(accepted["imageId"])

    assert image["status"] == "completed", image
    expected = {"imageId": accepted["imageId"], "jobId": accepted["jobId"], "contentType": "image/png"}
    expected |= {"width": 1000, "height": 500, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert expected.items() <= image.items()
    assert [variant["name"] for variant in image["variants"]] == DEFAULT
    assert len(image["blurhash"]) > 6
    assert image["color"].startswith("#")
    assert len(image["dhash"]) == 16
    for variant in image["variants"]:
        nominal = int(variant["name"].removeprefix("w").partition(".")[0])
        served = await get(service, f"/images/{image['imageId']}/{variant['name']}")
        assert served.headers["content-type"] == f"image/{variant['format']}"
        assert (len(served.content), hashlib.sha256(served.content).hexdigest()) == (
            variant["bytes"],
            variant["sha256"],
        )
        with Image.open(io.BytesIO(served.content)) as decoded:
            assert decoded.format is not None
            assert decoded.format.lower() == variant["format"]
            assert (
                decoded.size == (variant["width"], variant["height"]) == (min(nominal, 1000), min(nominal, 1000) // 2)
            )


async def test_a_form_with_a_file_and_its_own_variants(service: Service) -> None:
    wanted = [{"name": "thumb", "width": 20, "height": 20, "fit": "cover", "format": "webp", "quality": 50}]
    files = {"file": ("x.txt", picture(), "text/plain")}
    fields = {"variants": json.dumps(wanted)}
    answer = await service.served.http.post("/images", files=files, data=fields)
    assert answer.status_code == 202, answer.text
    async with images_working():
        image = await service.ended(answer.json()["imageId"])
    [variant] = image["variants"]
    assert (variant["name"], variant["width"], variant["height"], variant["format"]) == ("thumb", 20, 20, "webp")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP"])
async def test_every_format_is_accepted_whatever_its_name_says(service: Service, kind: str) -> None:
    data = picture(60, 40, kind)
    async with images_working():
        image = await service.made(data, headers={"content-type": "application/pdf"}, params={"variants": SMALL})
    assert (image["status"], image["contentType"]) == ("completed", f"image/{kind.lower()}")
    assert (image["width"], image["height"]) == (60, 40)


async def test_the_orientation_of_a_photo_is_applied(service: Service) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret place"
    async with images_working():
        image = await service.made(picture(60, 40, "JPEG", exif=exif), params={"variants": SMALL})
    assert (image["width"], image["height"]) == (40, 60)
    served = await get(service, image["variants"][0]["url"])
    assert b"secret" not in served.content


async def test_animations_stay_animated_in_webp_and_avif(service: Service) -> None:
    wanted = json.dumps([{"width": 20, "format": form} for form in ("webp", "avif", "jpeg")])
    async with images_working():
        image = await service.made(animation(5), params={"variants": wanted})
    assert image["frames"] == 5
    frames = {}
    for variant in image["variants"]:
        with Image.open(io.BytesIO((await get(service, variant["url"])).content)) as decoded:
            frames[variant["format"]] = getattr(decoded, "n_frames", 1)
    assert frames == {"webp": 5, "avif": 5, "jpeg": 1}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "unsupported_image"),
        (b"hello, world", "unsupported_image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "unsupported_image"),
        (b"%PDF-1.7 " + bytes(100), "unsupported_image"),
    ],
)
async def test_what_is_no_image_is_415(service: Service, data: bytes, code: str) -> None:
    assert await service.refused(data, headers={"content-type": "image/png"}) == (415, code)
    assert service.files() == []


async def test_limits_on_bytes_pixels_and_frames(service: Service, images_settings: Sets) -> None:
    images_settings(max_bytes=5000, max_pixels=10_000, max_frames=3)
    noise = picture(100, 100, "BMP")
    assert await service.refused(noise) == (413, "image_too_large")
    files = {"file": ("x.bmp", noise)}
    assert (await service.served.http.post("/images", files=files)).json()["code"] == "image_too_large"
    assert await service.refused(picture(101, 100)) == (422, "image_too_many_pixels")
    assert await service.refused(animation(4)) == (422, "image_too_many_frames")
    assert (await service.upload(animation(3)))["status"] == "queued"


@pytest.mark.parametrize("text", ["[]", "{}", "no", '[{"width": 1, "format": "bmp"}]', '[{"format": "jpeg"}]'])
async def test_wrong_variants_are_422_and_nothing_is_kept(service: Service, text: str) -> None:
    assert await service.refused(picture(), params={"variants": text}) == (422, "invalid_variants")
    answer = await service.served.http.post("/images", files={"file": picture()}, data={"variants": text})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_variants")
    assert (await service.served.http.get("/images")).json() == {"images": [], "nextCursor": None}


@pytest.mark.parametrize("variants", [[], {}, "all", [{"width": 1, "format": "bmp"}]])
async def test_reprocess_with_wrong_variants_is_422_and_changes_nothing(service: Service, variants: Any) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})
    before = await service.image(accepted["imageId"])
    answer = await service.served.http.post(f"/images/{accepted['imageId']}/reprocess", json={"variants": variants})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_variants")
    assert await service.image(accepted["imageId"]) == before


async def test_a_form_without_a_file_is_400(service: Service) -> None:
    answer = await service.served.http.post("/images", files={"other": b"x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "file_missing")


@pytest.mark.parametrize("twice", ["file", "variants", "query"])
async def test_what_is_sent_twice_is_400_and_nothing_is_kept(service: Service, twice: str) -> None:
    fields: list[tuple[str, Any]] = [("file", ("a.png", picture()))]
    fields += [("file", ("b.png", picture()))] if twice == "file" else [("variants", (None, SMALL))]
    fields += [("variants", (None, SMALL))] if twice == "variants" else []
    query = {"variants": SMALL} if twice == "query" else {}
    answer = await service.served.http.post("/images", files=fields, params=query)
    assert (answer.status_code, answer.json()["code"]) == (400, "conflicting_input")
    assert (await service.served.http.get("/images")).json()["images"] == []
    async with images_working():
        await (await sweep.enqueue()).result(60)
    assert service.files() == []


@pytest.mark.parametrize("text", [b"[" + b" " * 70_000 + b"]", b"\xff\xfe"])
async def test_a_field_that_cannot_be_variants_is_422(service: Service, text: bytes) -> None:
    files = [("file", ("a.png", picture())), ("variants", (None, text))]
    answer = await service.served.http.post("/images", files=files)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_variants")


async def test_a_file_that_is_broken_behind_its_header_fails(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(300, 300)[:300])
    assert (image["status"], image["error"]["code"], image["variants"]) == ("failed", "corrupt_image", [])
    assert "holdfast" not in image["error"]["message"].lower()


async def test_a_repeated_upload_with_its_key_is_one_image(service: Service) -> None:
    key, data = {"Idempotency-Key": "photo-1"}, picture()
    first, again = await service.upload(data, headers=key), await service.upload(data, headers=key)
    assert first == again
    assert await service.refused(picture(10, 10), headers=key) == (422, "idempotency_key_reused")
    assert await service.refused(data, headers=key, params={"variants": SMALL}) == (422, "idempotency_key_reused")
    assert len((await service.served.http.get("/images")).json()["images"]) == 1


@pytest.mark.parametrize("key", ["", "é", "a\tb", "x" * 256])
async def test_an_invalid_idempotency_key_is_422(service: Service, key: str) -> None:
    headers = {"Idempotency-Key": key.encode()}
    assert await service.refused(picture(), headers=headers) == (422, "invalid_idempotency_key")
    accepted = await service.upload(picture(), params={"variants": SMALL})
    answer = await service.served.http.post(f"/images/{accepted['imageId']}/reprocess", json={}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")


async def test_the_key_of_a_deleted_image_makes_another_one(service: Service) -> None:
    key = {"Idempotency-Key": "photo-1"}
    first = await service.upload(picture(), headers=key, params={"variants": SMALL})
    job = (await service.served.http.delete(f"/images/{first['imageId']}")).json()["jobId"]
    assert await service.refused(picture(), headers=key, params={"variants": SMALL}) == (409, "image_deleted")
    async with images_working():
        assert (await service.job(job))["status"] == "COMPLETED"
    again = await service.upload(picture(), headers=key, params={"variants": SMALL})
    assert again["imageId"] != first["imageId"]
    assert (await service.image(again["imageId"]))["status"] == "queued"


async def test_a_repeated_reprocess_with_its_key_changes_nothing(service: Service) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})
    path, key = f"/images/{accepted['imageId']}/reprocess", {"Idempotency-Key": "once"}

    async def ask(width: int, **headers: str) -> httpx2.Response:
        return await service.served.http.post(path, json={"variants": [variant(width)]}, headers=headers)

    first = (await ask(20, **key)).json()
    assert (await ask(24)).status_code == 202
    assert (await ask(20, **key)).json() == first, "a late retry of the first request"
    other = await ask(28, **key)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    async with images_working():
        image = await service.ended(accepted["imageId"])
        assert [each["name"] for each in image["variants"]] == ["w24.webp"]
        assert (await ask(20, **key)).json() == {**first, "status": "completed"}


async def test_the_same_bytes_are_stored_once_for_a_tenant(service: Service) -> None:
    data, originals = picture(), "originals/"
    async with images_working():
        images = [await service.made(data, params={"variants": SMALL}) for _ in range(3)]
        await (await sweep.enqueue()).result(60)
        [original] = service.files(originals)
        for image in images[:2]:
            await delete(service, image)
        assert service.files(originals) == [original]
        await reprocess(service, images[2], width=8)
        assert (await service.ended(images[2]["imageId"]))["variants"][0]["width"] == 8
        await delete(service, images[2])
    assert service.files(originals) == []


async def delete(service: Service, image: dict[str, Any]) -> None:
    answer = await service.served.http.delete(f"/images/{image['imageId']}")
    assert (await service.job(answer.json()["jobId"]))["status"] == "COMPLETED"


async def reprocess(service: Service, image: dict[str, Any], **variant: Any) -> dict[str, Any]:
    body = {"variants": [{"format": "webp", **variant}]}
    answer = await service.served.http.post(f"/images/{image['imageId']}/reprocess", json=body)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def test_ranges_etags_and_content_negotiation(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(400, 300))
    path = f"/images/{image['imageId']}/w320"
    whole = await get(service, f"{path}.webp")
    assert (await get(service, f"{path}.webp", range="bytes=2-5")).content == whole.content[2:6]
    assert (await get(service, f"{path}.webp", **{"if-none-match": whole.headers["etag"]})).status_code == 304
    assert whole.headers["cache-control"] == "private, max-age=3600"
    for accept, chosen in {
        "image/avif,image/webp,*/*": "avif",
        "image/webp,*/*;q=0.8": "webp",
        "image/avif;q=0.1,image/webp": "webp",
        "*/*": "jpeg",
        "image/webp;q=0.5,*/*;q=0.8": "jpeg",
        "image/avif;q=0.1,image/*": "jpeg",
        "image/avif;q=nan,image/webp;q=0.2": "webp",
        "image/jpeg": "jpeg",
        "": "jpeg",
    }.items():
        served = await get(service, path, accept=accept)
        assert (served.headers["content-type"], served.headers["vary"]) == (f"image/{chosen}", "Accept"), accept
    assert (await get(service, path, accept="text/html")).status_code == 406
    assert (await get(service, f"{path}0")).json()["code"] == "no_variant"


async def test_signed_urls_need_no_key(service: Service) -> None:
    key = await service.served.engine.keys.create(NewKey(scopes=["images:read", "images:write"]))
    service.served.http.headers.update(bearer(key.text))
    async with images_working():
        image = await service.made(picture(), params={"variants": SMALL})
    path, url = f"{service.served.url}/images/{image['imageId']}/w16.webp", image["variants"][0]["url"]
    async with httpx2.AsyncClient() as anyone:
        assert (await anyone.get(path)).status_code == 401
        assert (await anyone.get(url)).status_code == 200
        assert (await anyone.get(url.replace("w16", "w17"))).json()["code"] == "invalid_signature"
        assert (await anyone.get(f"{url}&utm_source=newsletter")).status_code == 200
        assert (await anyone.get(url[:-1])).status_code == 403
        assert (await anyone.get(url + "0" * 300)).status_code == 403
    assert (await get(service, path)).status_code == 200


async def test_scopes_and_tenants_keep_images_apart(service: Service) -> None:
    keys = service.served.engine.keys
    _, reader = await keys.create(NewKey(scopes=["images:read"]))
    _, writer = await keys.create(NewKey(scopes=["images:write"], tenant="other"))
    accepted = await service.upload(picture(), headers=bearer(writer), params={"variants": SMALL})
    for verb, path, key, status in [
        ("POST", "/images", reader, 403),
        ("GET", f"/images/{accepted['imageId']}", reader, 404),
        ("GET", f"/images/{accepted['imageId']}", writer, 403),
        ("DELETE", f"/images/{accepted['imageId']}", reader, 403),
        ("GET", "/images", "", 401),
    ]:
        answer = await service.served.http.request(verb, path, headers=bearer(key) if key else {})
        assert answer.status_code == status, (verb, path, answer.text)


@pytest.mark.parametrize("image_id", ["nonsense", "%00", "%ff", "x" * 3000, "00000000-0000-0000-0000-00000000000A"])
async def test_what_is_no_id_is_no_image(service: Service, image_id: str) -> None:
    for verb, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/w16.webp"),
        ("POST", "/cancel"),
        ("POST", "/reprocess"),
    ):
        answer = await service.served.http.request(verb, f"/images/{image_id}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "image_not_found"), (verb, path, answer.text)


async def test_a_refused_upload_is_not_measured_as_what_its_client_says(service: Service) -> None:
    assert (await service.refused(b"no image", headers={"Content-Type": "image/png"}))[0] == 415
    await service.upload(picture(), headers={"Content-Type": "image/gif"})
    found = (await scraped(service.served))["upload_size_bytes"].samples
    kinds = {sample.labels["mime_type"] for sample in found}
    assert kinds == {"application/octet-stream", "image/png"}


async def test_images_are_listed_in_pages_and_by_status(service: Service) -> None:
    made = [(await service.upload(picture(20 + n, 20), params={"variants": SMALL}))["imageId"] for n in range(5)]
    first = (await service.served.http.get("/images", params={"limit": 2})).json()
    rest = (await service.served.http.get("/images", params={"cursor": first["nextCursor"]})).json()
    assert [image["imageId"] for image in first["images"] + rest["images"]] == made[::-1]
    assert rest["nextCursor"] is None
    for status, count in (("queued", 5), ("completed", 0)):
        answer = await service.served.http.get("/images", params={"status": status})
        assert len(answer.json()["images"]) == count
    assert (await service.served.http.get("/images", params={"status": "PENDING"})).status_code == 422
    for cursor in ("", "x", "\0", f"{made[0]}0"):
        answer = await service.served.http.get("/images", params={"cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor"), cursor


@pytest.mark.postgres
async def test_images_are_listed_whatever_the_collation_of_the_database(
    postgres_server_url: str, postgres_operator: psycopg.Connection, tmp_path: Path, images_settings: Sets
) -> None:
    """In most languages punctuation sorts before digits, and `initdb` takes that of the machine."""
    images_settings(storage_url=str(tmp_path))
    name = f"hf_collation_{secrets.token_hex(4)}"
    postgres_operator.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
    try:
        url = with_database(postgres_server_url, name)
        await migrate(url, [ext])
        app.settings = Settings(database_url=url)
        async with serving(url, app=app) as served:
            service = Service(served, tmp_path)
            made = [
                (await service.upload(picture(20 + n, 20), params={"variants": SMALL}))["imageId"] for n in range(3)
            ]
            for query in ({}, {"status": "queued"}):
                page = (await served.http.get("/images", params=query)).json()
                assert [image["imageId"] for image in page["images"]] == made[::-1], query
        await app.close()
    finally:
        postgres_operator.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_new_variant_set_makes_only_the_difference(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(), params={"variants": json.dumps([variant(16), variant(32)])})
        before = set(service.files("variants/"))
        body = {"variants": [variant(32), variant(48)]}
        again = await service.served.http.post(f"/images/{image['imageId']}/reprocess", json=body)
        image = await service.ended(image["imageId"])
    assert (image["jobId"], image["status"]) == (again.json()["jobId"], "completed")
    assert [each["name"] for each in image["variants"]] == ["w32.webp", "w48.webp"]
    [new] = set(service.files("variants/")) - before
    assert new.endswith("/w48.webp")


def variant(width: int) -> dict[str, Any]:
    return {"width": width, "format": "webp"}


async def test_a_redriven_reprocess_makes_what_is_wanted_now(service: Service) -> None:
    """Variants that were asked for later are not replaced."""
    image = await service.upload(picture(), params={"variants": SMALL})
    old, new = [await reprocess(service, image, width=width) for width in (24, 32)]
    engine = service.served.engine
    worker = (await engine.workers.register()).id
    for lease in await engine.claim(worker, types=["IMAGE_REPROCESS"], limit=9):
        if lease.id == old["jobId"]:
            await engine.fail(worker, lease.id, lease.token, "canceled", permanent=True)
        else:
            await engine.release(worker, lease.id, lease.token)
    async with images_working():
        assert (await service.job(new["jobId"]))["status"] == "COMPLETED"
        again = await service.served.http.post(f"/api/admin/jobs/{old['jobId']}/redrive", headers=ADMIN)
        assert (await service.job(again.json()["jobId"]))["status"] == "COMPLETED"
        image = await service.ended(image["imageId"])
    assert (image["jobId"], [each["name"] for each in image["variants"]]) == (again.json()["jobId"], ["w32.webp"])


async def test_reprocess_takes_variants_as_an_upload_does(service: Service) -> None:
    image = await service.upload(picture(), params={"variants": SMALL})
    path, asked = f"/images/{image['imageId']}/reprocess", {"variants": json.dumps([variant(24)])}
    twice = await service.served.http.post(path, params=asked, json={"variants": [variant(24)]})
    assert (twice.status_code, twice.json()["code"]) == (400, "conflicting_input")
    unknown = await service.served.http.post(path, params={"variant": "x"})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid_query")
    assert (await service.served.http.post(path, params=asked)).status_code == 202
    async with images_working():
        image = await service.ended(image["imageId"])
    assert [each["name"] for each in image["variants"]] == ["w24.webp"]


async def test_signed_urls_end_with_the_request_to_delete(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(), params={"variants": SMALL})
    url = image["variants"][0]["url"]
    assert (await get(service, url)).status_code == 200
    await service.served.http.delete(f"/images/{image['imageId']}")
    assert ((await get(service, url)).status_code, (await get(service, url)).json()["code"]) == (404, "no_variant")


async def test_a_deleted_image_is_gone_with_its_files(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(), params={"variants": SMALL})
        path = f"/images/{image['imageId']}"
        answer = await service.served.http.delete(path)
        assert (answer.status_code, await service.gone(image["imageId"])) == (202, True)
        assert (await service.served.http.delete(path)).status_code == 404
        assert answer.headers["location"] == f"/jobs/{answer.json()['jobId']}"
        assert (await service.job(answer.json()["jobId"]))["status"] == "COMPLETED"
    for url in (path, f"{path}/w16.webp", image["variants"][0]["url"]):
        assert (await get(service, url)).status_code == 404
    assert service.files() == []


async def test_a_queued_image_is_canceled_by_a_control_job(service: Service) -> None:
    """R000-24: the route creates a job, and moves no state itself."""
    accepted = await service.upload(picture())
    answer = await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
    assert answer.status_code == 202
    assert (await service.image(accepted["imageId"]))["status"] == "queued"
    async with images_working(concurrency=1):
        image = await service.ended(accepted["imageId"])
    assert (image["status"], image["error"]["code"]) == ("failed", "canceled")
    control = await service.served.http.get(f"/api/admin/jobs/{answer.json()['jobId']}", headers=ADMIN)
    assert control.json()["jobType"] == "IMAGE_CANCEL"
    repeated = await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
    assert repeated.status_code == 202


async def test_a_cancel_ends_no_job_that_was_created_after_it(service: Service) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})
    path = f"/images/{accepted['imageId']}"
    cancel = await service.served.http.post(f"{path}/cancel")
    assert cancel.headers["location"] == f"/jobs/{cancel.json()['jobId']}"
    again = await service.served.http.post(f"{path}/reprocess", json={})
    async with images_working(concurrency=1):
        assert (await service.job(cancel.json()["jobId"]))["status"] == "COMPLETED"
        image = await service.ended(accepted["imageId"])
    assert (image["status"], image["jobId"]) == ("completed", again.json()["jobId"])


async def test_a_completed_image_has_nothing_to_cancel(service: Service) -> None:
    async with images_working():
        image = await service.made(picture(), params={"variants": SMALL})
    answer = await service.served.http.post(f"/images/{image['imageId']}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "already_final")


async def test_control_jobs_can_be_created_as_jobs_and_name_images_of_the_tenant_only(service: Service) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})
    body = {"jobType": "IMAGE_DELETE", "payload": {"image": accepted["imageId"]}}
    _, without = await service.served.engine.keys.create(NewKey())
    for headers, status in (
        (bearer(without), 403),
        (await writer_of(service, "other"), 404),
        (await writer_of(service, "default"), 202),
    ):
        assert (await service.served.http.post("/jobs", json=body, headers=headers)).status_code == status
    async with images_working():
        await until(lambda: service.files() == [])


async def test_a_job_of_the_api_brings_its_variants(service: Service) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})

    async def create(variants: Any) -> httpx2.Response:
        body = {"jobType": "IMAGE_REPROCESS", "payload": {"image": accepted["imageId"], "variants": variants}}
        return await service.served.http.post("/jobs", json=body)

    for wrong in ([], [{"width": 1, "format": "bmp"}], [variant(20), variant(20)], "all"):
        assert (await create(wrong)).status_code == 422, wrong
    assert (await create([variant(20)])).status_code == 202
    async with images_working():
        image = await service.ended(accepted["imageId"])
    assert [each["name"] for each in image["variants"]] == ["w20.webp"]


async def test_a_cdn_is_purged_for_images_of_the_tenant_only(service: Service) -> None:
    accepted = await service.upload(picture(), params={"variants": SMALL})
    body = {"jobType": "IMAGE_PURGE", "payload": {"image": accepted["imageId"]}}
    for tenant, status in (("other", 404), ("default", 202)):
        answer = await service.served.http.post("/jobs", json=body, headers=await writer_of(service, tenant))
        assert answer.status_code == status, tenant


async def writer_of(service: Service, tenant: str) -> dict[str, str]:
    scopes = ["jobs:create", "images:write"]
    _, key = await service.served.engine.keys.create(NewKey(scopes=scopes, tenant=tenant))
    return bearer(key)


async def test_a_deletion_that_failed_is_redriven(service: Service) -> None:
    """Also if it had not deleted anything: the image is hidden, so no other request can name it."""
    engine = service.served.engine
    accepted = await service.upload(picture(), params={"variants": SMALL})
    job = (await service.served.http.delete(f"/images/{accepted['imageId']}")).json()["jobId"]
    worker = (await engine.workers.register()).id
    [lease] = await engine.claim(worker, types=["IMAGE_DELETE"])
    await engine.fail(worker, lease.id, lease.token, "cdn_not_found", permanent=True)
    again = await service.served.http.post(f"/api/admin/jobs/{job}/redrive", headers=ADMIN)
    assert again.status_code in (200, 201, 202), again.text
    async with images_working():
        await until(lambda: service.files() == [])
        assert (await service.job(again.json()["jobId"]))["status"] == "COMPLETED"


async def test_a_cancel_of_an_image_whose_job_was_pruned_does_nothing(service: Service) -> None:
    engine = service.served.engine
    accepted = await service.upload(picture(), params={"variants": SMALL})
    await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
    async with images_working(concurrency=1):
        await service.ended(accepted["imageId"])
        assert await engine.maintenance.prune(Retention(dead=0)) == 1
        again = await service.served.http.post(f"/images/{accepted['imageId']}/cancel")
        assert (await service.job(again.json()["jobId"]))["status"] == "COMPLETED"


async def test_with_a_cdn_shared_caches_keep_variants_longer_than_browsers(
    service: Service, images_settings: Sets
) -> None:
    async with images_working():
        image = await service.made(picture(), params={"variants": SMALL})
    images_settings(cdn="EXAMPLE", url_seconds=60)
    served = await get(service, f"/images/{image['imageId']}/w16.webp")
    assert served.headers["cache-control"] == "public, max-age=3600, s-maxage=86400"
    signed = await get(service, image["variants"][0]["url"])
    assert signed.headers["cache-control"] == "private, max-age=60"


async def test_words_of_the_status_are_those_of_the_lifecycle(service: Service) -> None:
    assert set(IMAGES.words.values()) == {"queued", "processing", "completed", "failed_retryable", "failed"}
