"""What holds for every route, whoever wrote it."""

from tests.server.steps import Served


async def test_an_unknown_path_is_a_problem_with_a_code(served: Served) -> None:
    answer = await served.http.get("/nothing/here")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "route_not_found"
    assert answer.json()["requestId"] == answer.headers["x-request-id"]


async def test_a_wrong_method_is_405_with_the_allowed_methods(served: Served) -> None:
    answer = await served.http.delete("/jobs")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST, GET, HEAD"
    assert answer.json()["code"] == "method_not_allowed"
