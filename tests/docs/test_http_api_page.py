"""The tables of the page on the HTTP API are those of the routes."""

from tests.docs.generate import with_routes
from tests.docs.pages import PAGES

PAGE = PAGES["docs/reference/http-api.md"]


def test_the_page_lists_every_route() -> None:
    assert with_routes(PAGE) == PAGE, "run `python -m tests.docs.generate`"
