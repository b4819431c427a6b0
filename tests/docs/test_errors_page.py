"""Every error code has a line that says what it means and what to do; no line is about a code that is gone."""

import pytest

from holdfast.engine.reap import _WHY
from tests.docs.error_codes import codes_in, error_codes
from tests.docs.pages import first_cells, section

PAGE = "docs/errors.md"
REASONS = "Reasons on a job"


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    reasons = section(PAGE, REASONS)
    documented = [code for code in first_cells(PAGE) if f"| `{code}` |" not in reasons or code in error_codes()]
    assert sorted(documented) == sorted(error_codes())


def test_every_reason_of_a_reaped_job_is_documented() -> None:
    reasons = section(PAGE, REASONS)
    assert [why for why in _WHY if f"| `{why}` |" not in reasons] == []


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ("raise Invalid('x', code='a_code')", {"a_code"}),
        ("class Gone(HoldfastError):\n    code = 'gone'", {"gone"}),
        ("def f(x):\n    check_name(x, 'worker name')", {"invalid_worker_name"}),
        ("def f(x):\n    encode(x, 'note', max_bytes=1)", {"note_not_json", "note_too_large"}),
        ("def f(x):\n    raise UnknownName.of('colour', x, [])", {"unknown_colour"}),
        (
            "def f(x):\n    for y, what in ((x.a, 'one'), (x.b, 'two')):\n        check_name(y, what)",
            {"invalid_one", "invalid_two"},
        ),
        ("def f(x):\n    for what in ('one', 'two'):\n        g(code=f'bad_{what}')", {"bad_one", "bad_two"}),
        ("text.encode('utf-8', 'replace')", set()),
    ],
)
def test_codes_are_found_in_every_form(source: str, codes: set[str]) -> None:
    assert set(codes_in(source)) == codes


def test_a_new_way_to_make_codes_is_noticed() -> None:
    with pytest.raises(AssertionError, match="MAKERS"):
        list(codes_in("def checked(x, what):\n    raise Invalid('x', code=f'odd_{what}')"))
