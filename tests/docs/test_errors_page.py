"""Every error code has a line that says what it means and what to do; no line is about a code that is gone."""

import ast

import pytest

from holdfast.engine.maintenance.reap import _WHY
from tests.docs.error_codes import SOURCE, codes_in, error_codes
from tests.docs.pages import PAGES, first_cells, section

PAGE = "docs/reference/errors.md"
REASONS, FAILURES = "Reasons on a job", "Failure codes"


def test_every_code_is_documented_and_every_documented_code_exists() -> None:
    before_reasons, _, _ = PAGES[PAGE].partition(f"## {REASONS}")
    codes, documented = error_codes(), first_cells(before_reasons)
    assert codes - set(documented) == set()
    assert set(documented) - codes == set()
    assert len(documented) == len(set(documented))


def test_every_reason_of_a_reaped_job_is_documented() -> None:
    assert set(_WHY) <= set(first_cells(section(PAGE, REASONS)))


def test_every_failure_code_of_a_worker_is_documented() -> None:
    given = {
        str(node.args[0].value)
        for path in (SOURCE / "worker").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failed"
        if isinstance(node.args[0], ast.Constant)
    }
    assert given <= set(first_cells(section(PAGE, FAILURES)))


CHECK = "def check(value, what):\n    raise Invalid('no', code=f'invalid_{what}')\n"
OF_A_CLASS = (
    "class Odd(Invalid):\n    @classmethod\n    def of(cls, what):\n        return cls('no', code=f'odd_{what}')\n"
)
OF_EACH = "class Engine:\n    def check(self, x, what):\n        raise Invalid('no', code=f'invalid_{what}')\n"


@pytest.mark.parametrize(
    ("source", "codes"),
    [
        ("raise Invalid('no', code='a_code')", {"a_code"}),
        ("class Gone(HoldfastError):\n    code = 'gone'", {"gone"}),
        (CHECK, set()),
        (CHECK + "def f(x):\n    check(x, 'worker name')", {"invalid_worker_name"}),
        (CHECK + "def two(x, a):\n    check(x, a)\ndef f(x):\n    two(x, 'tag')", {"invalid_tag"}),
        (CHECK + "def f(x):\n    for y, a in ((x, 'p'), (x, 'q')):\n        check(y, a)", {"invalid_p", "invalid_q"}),
        ("def f(x):\n    for a in ('one', 'two'):\n        g(code=f'{a}_bad')", {"one_bad", "two_bad"}),
        ("def f(x, code):\n    raise Invalid('no', code=code)\ndef g():\n    f(1, 'handed_in')", {"handed_in"}),
        (CHECK + "def f(text):\n    text.check('utf-8', 'replace')", set()),
        (OF_A_CLASS + "def f():\n    Odd.of('tag')", {"odd_tag"}),
        (OF_A_CLASS + "def f():\n    errors.Odd.of('tag')", {"odd_tag"}),
        (OF_A_CLASS + "def f(x, samples):\n    Even.of(x.schema)\n    samples.of(x.schema)", set()),
        (OF_EACH + "def f(engine):\n    engine.job_types.check(1, 'tag')", {"invalid_tag"}),
    ],
)
def test_error_codes_are_found_in_every_syntactic_form(source: str, codes: set[str]) -> None:
    assert codes_in([source]) == codes


def test_an_error_code_that_cannot_be_determined_is_reported() -> None:
    with pytest.raises(AssertionError, match="cannot tell"):
        codes_in(["def f(x):\n    what = x.kind\n    raise Invalid('no', code=f'odd_{what}')"])
