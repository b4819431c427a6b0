"""Purging a distribution: against a server that speaks CloudFront, and against servers that fail in every way."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from aiobotocore.session import get_session
from botocore.retries.standard import ExponentialBackoff

from holdfast.workloads.images import cdn
from holdfast.workloads.images.cdn import CdnUnavailable, purge, purge_images
from holdfast.workloads.images.extension import cdn_errors, cdn_seconds
from holdfast.workloads.images.settings import Settings
from tests.servers.aws import AwsServer
from tests.webhooks.receiver import Answering, Got, Receiver, answer, receiving
from tests.workloads.images.cloudfront import Distribution

OPERATION = "create_invalidation"
JOB = "0198a000-0000-7000-8000-000000000001"
REQUEST = "5ecb6a60-0000-4000-8000-000000000002"
ACCOUNT = "123456789012"
PREFIXES = ["/images/a/", "/images/b/"]


@pytest.fixture(autouse=True)
def no_pause_before_the_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0)


@contextmanager
def counted(calls: int, **errors: int) -> Iterator[None]:
    """So many more calls, and errors by reason, in the metrics."""
    calls += cdn_seconds.value(OPERATION)[0]
    before = dict(cdn_errors.values)
    yield
    assert cdn_seconds.value(OPERATION)[0] == calls
    more = {labels: count - before.get(labels, 0) for labels, count in cdn_errors.values.items()}
    assert {labels: count for labels, count in more.items() if count} == {
        (OPERATION, name): errors[name] for name in errors
    }


# -- invalidations -----------------------------------------------------------------------------------------------------


async def test_a_purge_invalidates_everything_below_the_prefixes(cloudfront: Distribution) -> None:
    with counted(1):
        made = await purge(cloudfront.id, PREFIXES, reference=JOB, endpoint_url=cloudfront.url)
    assert made
    assert await cloudfront.invalidations() == {JOB: ["/images/a/*", "/images/b/*"]}


async def test_a_repeated_purge_is_the_same_invalidation(cloudfront: Distribution) -> None:
    """Whatever the order, and however often a prefix is named."""
    orders = [PREFIXES, PREFIXES[::-1], [*PREFIXES, "/images/a"]]
    made = [await purge(cloudfront.id, order, reference=JOB, endpoint_url=cloudfront.url) for order in orders]
    assert len(set(made)) == 1
    assert await cloudfront.invalidations() == {JOB: ["/images/a/*", "/images/b/*"]}


async def test_concurrent_purges_with_one_reference_are_one_invalidation(cloudfront: Distribution) -> None:
    calls = [purge(cloudfront.id, PREFIXES, reference=JOB, endpoint_url=cloudfront.url) for _ in range(5)]
    assert len(set(await asyncio.gather(*calls))) == 1
    assert list(await cloudfront.invalidations()) == [JOB]


async def test_purges_with_other_references_are_other_invalidations(cloudfront: Distribution) -> None:
    made = [await purge(cloudfront.id, PREFIXES, reference=f"{n}", endpoint_url=cloudfront.url) for n in range(2)]
    assert len(set(made)) == 2
    assert len(await cloudfront.invalidations()) == 2


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (15, [15]), (16, [15, 1]), (40, [15, 15, 10])])
async def test_an_invalidation_has_at_most_as_many_wildcards_as_may_be_in_progress(
    cloudfront: Distribution, count: int, sizes: list[int]
) -> None:
    prefixes = [f"/images/{number:02}/" for number in range(count)]
    names = [f"{JOB}-{number}" for number in range(1, len(sizes) + 1)] if count > 15 else [JOB] * len(sizes)
    with counted(2 * len(sizes)):
        made = [await purge(cloudfront.id, prefixes, reference=JOB, endpoint_url=cloudfront.url) for _ in range(2)]
    found = await cloudfront.invalidations()
    assert made[0] == made[1]
    assert len(set(filter(None, made[0].split(",")))) == len(sizes)
    assert {name: len(found[name]) for name in found} == dict(zip(names, sizes, strict=True))
    assert sorted(path for paths in found.values() for path in paths) == [f"{prefix}*" for prefix in prefixes]


async def test_a_reference_that_has_other_paths_does_not_prevent_the_purge(cloudfront: Distribution) -> None:
    first = await purge(cloudfront.id, PREFIXES, reference=JOB, endpoint_url=cloudfront.url)
    with counted(4, InvalidationBatchAlreadyExists=2):
        made = [await purge(cloudfront.id, ["/c/"], reference=JOB, endpoint_url=cloudfront.url) for _ in range(2)]
    assert made[0] == made[1] != first
    paths = await cloudfront.invalidations()
    assert paths.pop(JOB) == ["/images/a/*", "/images/b/*"]
    ((reference, others),) = paths.items()
    assert reference.startswith(f"{JOB}-")
    assert others == ["/c/*"]


async def test_images_are_purged_by_their_ids(cloudfront: Distribution) -> None:
    assert await purge_images(Settings(**cloudfront.settings), ["b", "a"], reference=JOB)
    assert await cloudfront.invalidations() == {JOB: ["/images/a/*", "/images/b/*"]}


@pytest.mark.parametrize("none", ["none", ""])
async def test_without_a_distribution_nothing_is_called(none: str) -> None:
    with counted(0):
        assert await purge_images(Settings(cdn=none, cdn_endpoint_url="http://127.0.0.1:1"), ["a"], reference=JOB) == ""


def test_each_event_loop_can_purge(aws_server: AwsServer) -> None:
    async def both() -> str:
        async with Distribution.created(aws_server) as cloudfront:
            return await purge(cloudfront.id, PREFIXES, reference=JOB, endpoint_url=cloudfront.url)

    assert asyncio.run(both()) == asyncio.run(both())


# -- errors ------------------------------------------------------------------------------------------------------------


def refusal(status: int, code: str) -> Answering:
    """As CloudFront words it."""
    text = f"User: arn:aws:iam::{ACCOUNT}:user/images is not authorized on images.example.com"
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error>"
    body = f"<ErrorResponse>{error}<RequestId>{REQUEST}</RequestId></ErrorResponse>"
    return answer(status, body.encode(), content_type="text/xml")


def sending(*pieces: bytes, forever: bool = False) -> Answering:
    """Send these bytes, the last one again and again; then close the connection."""

    async def write(got: Got, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        while forever:
            writer.write(pieces[-1])
            await writer.drain()
            await asyncio.sleep(0.05)

    return write


async def hang(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


DENIED, UNAVAILABLE, THROTTLED, NOT_FOUND = "cdn_denied", "cdn_unavailable", "cdn_throttled", "cdn_not_found"
OK = b"HTTP/1.1 200 OK\r\n"
FAULTS: dict[str, tuple[Answering, str, str, int]] = {  # the response, the code, the reason, the number of requests
    "a server error": (refusal(503, "ServiceUnavailable"), UNAVAILABLE, "ServiceUnavailable", 2),
    "a server error without a body": (answer(503), UNAVAILABLE, "503", 2),
    "a page of a proxy": (answer(502, b"<html><body>Bad Gateway"), UNAVAILABLE, "502", 2),
    "throttling": (refusal(400, "Throttling"), THROTTLED, "Throttling", 2),
    "throttling by status": (answer(429), THROTTLED, "429", 1),
    "a quota": (refusal(400, "TooManyInvalidationsInProgress"), THROTTLED, "TooManyInvalidationsInProgress", 1),
    "a timeout of the service": (refusal(400, "RequestTimeout"), UNAVAILABLE, "RequestTimeout", 2),
    "no permission": (refusal(403, "AccessDenied"), DENIED, "AccessDenied", 1),
    "a wrong secret": (refusal(403, "SignatureDoesNotMatch"), DENIED, "SignatureDoesNotMatch", 1),
    "an unknown key": (refusal(403, "InvalidClientTokenId"), DENIED, "InvalidClientTokenId", 1),
    "an invalid argument": (refusal(400, "InvalidArgument"), DENIED, "InvalidArgument", 1),
    "no distribution": (refusal(404, "NoSuchDistribution"), NOT_FOUND, "NoSuchDistribution", 1),
    "another service": (answer(404, b"not found"), NOT_FOUND, "404", 1),
    "a code that is no code": (refusal(403, "images.example.com: no"), DENIED, "unknown", 1),
    "not XML": (answer(201, b"\xff\x00 garbage"), UNAVAILABLE, "ResponseParserError", 1),
    "another document": (answer(201, b"<html></html>"), UNAVAILABLE, "ResponseParserError", 1),
    "nothing": (answer(201), UNAVAILABLE, "ResponseParserError", 1),
    "not HTTP": (sending(b"SSH-2.0-OpenSSH_9.9\r\n"), UNAVAILABLE, "HTTPClientError", 2),
    "a closed connection": (sending(), UNAVAILABLE, "ConnectionClosedError", 2),
    "half a response": (sending(OK + b"content-length: 99\r\n\r\n<"), UNAVAILABLE, "ConnectionClosedError", 2),
    "silence": (hang, UNAVAILABLE, "ReadTimeoutError", 2),
    "a response that does not end": (sending(OK + b"\r\n", b" ", forever=True), UNAVAILABLE, "TimeoutError", 1),
}


@pytest.fixture
async def server(aws_server: AwsServer) -> AsyncIterator[Receiver]:
    """In the place of AWS."""
    async with receiving() as server:
        yield server


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_error_has_a_code_that_says_whether_retrying_helps(
    server: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    monkeypatch.setattr(cdn, "READ_SECONDS", 0.3)
    monkeypatch.setattr(cdn, "CALL_SECONDS", 2.0)
    server.otherwise, code, reason, requests = FAULTS[fault]
    with counted(1, **{reason: 1}), pytest.raises(CdnUnavailable) as failed:
        await purge("EDFDVBD6EXAMPLE", PREFIXES, reference=JOB, endpoint_url=server.url)
    assert (failed.value.code, failed.value.reason) == (code, reason)
    assert failed.value.permanent is (code == NOT_FOUND)
    assert len(server.got) == requests
    assert_details_are_only_in_the_log(failed.value, caplog)


def assert_details_are_only_in_the_log(error: CdnUnavailable, caplog: pytest.LogCaptureFixture) -> None:
    shown = f"{error} {error!r} {error.message} {error.reason}"
    assert not [detail for detail in ("127.0.0.1", "example.com", ACCOUNT, REQUEST) if detail in shown]
    assert error.__suppress_context__
    (said,) = [record for record in caplog.records if record.name == cdn.__name__]
    assert said.levelno == logging.WARNING
    assert "EDFDVBD6EXAMPLE" in said.getMessage()
    if error.reason == "AccessDenied":
        assert ACCOUNT in said.getMessage()
        assert REQUEST in said.getMessage()


async def test_one_failed_request_is_repeated_at_once(server: Receiver) -> None:
    made = "<Invalidation><Id>I2J0I21PCUYOIK</Id></Invalidation>"
    server.answers = [answer(503), answer(201, made.encode())]
    with counted(1):
        assert await purge("E1", PREFIXES, reference=JOB, endpoint_url=server.url) == "I2J0I21PCUYOIK"


async def test_later_batches_wait_for_a_retry_that_repeats_the_first(server: Receiver) -> None:
    """The quota of wildcards in progress: the first batch uses all of it."""
    made = answer(201, b"<Invalidation><Id>I1</Id></Invalidation>")
    full = refusal(400, "TooManyInvalidationsInProgress")
    prefixes = [f"/images/{number}/" for number in range(20)]
    server.answers = [made, full, made, made]
    with pytest.raises(CdnUnavailable) as failed:
        await purge("E1", prefixes, reference=JOB, endpoint_url=server.url)
    assert (failed.value.code, failed.value.permanent) == (THROTTLED, False)
    assert await purge("E1", prefixes, reference=JOB, endpoint_url=server.url) == "I1,I1"
    assert [got.body for got in server.got[:2]] == [got.body for got in server.got[2:]]


async def test_a_reference_that_is_always_taken_is_an_error(server: Receiver) -> None:
    server.otherwise = refusal(400, "InvalidationBatchAlreadyExists")
    with pytest.raises(CdnUnavailable) as failed:
        await purge("E1", PREFIXES, reference=JOB, endpoint_url=server.url)
    assert (failed.value.code, len(server.got)) == (DENIED, 2)


async def test_an_unknown_distribution_is_not_found(cloudfront: Distribution) -> None:
    with counted(1, NoSuchDistribution=1), pytest.raises(CdnUnavailable) as failed:
        await purge("E1", PREFIXES, reference=JOB, endpoint_url=cloudfront.url)
    assert (failed.value.code, failed.value.permanent) == (NOT_FOUND, True)


async def test_a_server_that_is_down_is_unavailable_until_it_is_back(aws_server: AwsServer) -> None:
    aws_server.stop(kill=True)
    with counted(1, EndpointConnectionError=1), pytest.raises(CdnUnavailable) as failed:
        await purge("E1", PREFIXES, reference=JOB, endpoint_url=aws_server.url)
    assert (failed.value.code, failed.value.permanent) == (UNAVAILABLE, False)
    aws_server.start()
    async with Distribution.created(aws_server) as cloudfront:
        assert await purge(cloudfront.id, PREFIXES, reference=JOB, endpoint_url=cloudfront.url)


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "NoCredentialsError"),
        ({"AWS_SECRET_ACCESS_KEY": None}, "PartialCredentialsError"),
        ({"AWS_PROFILE": "missing"}, "ProfileNotFound"),
    ],
)
async def test_missing_credentials_are_denied_without_a_request(
    server: Receiver, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str | None], reason: str
) -> None:
    monkeypatch.setattr(cdn, "_session", get_session)  # which has not read the variables yet
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    for name, value in variables.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with pytest.raises(CdnUnavailable) as failed:
        await purge("E1", PREFIXES, reference=JOB, endpoint_url=server.url)
    assert (failed.value.code, failed.value.reason, failed.value.permanent) == (DENIED, reason, False)
    assert cdn_errors.value(OPERATION, reason) >= 1
    assert not server.got


async def test_without_a_region_the_request_is_for_the_one_of_cloudfront(
    server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(CdnUnavailable):
        await purge("E1", PREFIXES, reference=JOB, endpoint_url=server.url)
    assert "/us-east-1/cloudfront/aws4_request" in server.got[0].headers["authorization"]


def test_the_aws_library_is_loaded_when_it_is_needed() -> None:
    code = "import sys, holdfast.workloads.images.cdn; assert not {'botocore', 'aiobotocore'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
