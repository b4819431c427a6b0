"""The plugin as users have it: pytest finds it in their project. The project of docs/guides/testing.md is one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from holdfast import App

app = App(database_url="sqlite:////nowhere/real.db")

@app.job()
async def double(number: int) -> int:
    return 2 * number

@pytest.fixture
def jobs(holdfast_jobs):
    return holdfast_jobs(app)
"""


ASYNC = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makeini("[pytest]\nfilterwarnings = error")
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=100)


def test_the_examples_of_the_testing_guide_pass(pytester: pytest.Pytester) -> None:
    files = {}
    for block in blocks("docs/guides/testing.md", "py"):
        name, _, _ = block.text.partition("\n")
        files[name.removeprefix("# ")] = block.text
    assert {"shop.py", "conftest.py", "test_sign_up.py", "test_failures.py"} <= files.keys()
    for name, text in files.items():
        Path(pytester.path, name).write_text(text, encoding="utf-8")
    tests = sum(text.count("\ndef test_") + text.count("\nasync def test_") for text in files.values())
    run(pytester, *ASYNC).assert_outcomes(passed=tests)
    assert not Path(pytester.path, ".holdfast").exists(), "a test wrote to the app's own database"


def test_the_plugin_works_with_a_session_scoped_event_loop(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("""
        import pytest
        from conftest import double

        pytestmark = pytest.mark.asyncio(loop_scope="session")

        @pytest.mark.parametrize("number", [1, 2, 3])
        async def test_double(jobs, number):
            await double.enqueue(number)
            assert [ran.result for ran in await jobs.drain()] == [2 * number]
    """)
    run(pytester, *ASYNC).assert_outcomes(passed=3)


def test_sync_tests_work_without_pytest_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("""
        from conftest import double

        def test_double(jobs):
            double.enqueue_sync(4)
            assert [ran.result for ran in jobs.drain_sync()] == [8]
    """)
    run(pytester, "-p", "no:asyncio").assert_outcomes(passed=1)


def test_an_error_in_a_handler_shows_the_handler_and_names_the_job(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("""
        from conftest import app

        @app.job()
        def divide(number: int) -> float:
            return 1 / number  # this line

        def test_divide(jobs):
            divide.enqueue_sync(0)
            jobs.drain_sync()
    """)
    result = run(pytester, "-p", "no:asyncio")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*return 1 / number  # this line*", "*ZeroDivisionError*", "*raised by job *divide*"])


def test_the_plugin_imports_nothing_until_it_is_used() -> None:
    """Loaded at every start of pytest, it loads nothing else of ours and none of what we need."""
    code = (
        "import sys, holdfast.testing; print(*sorted(n for n in sys.modules if n.startswith(('holdfast', 'msgspec'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["holdfast", "holdfast.testing"]


def test_the_plugin_can_be_disabled(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(holdfast_jobs): ...")
    run(pytester, "-p", "no:asyncio", "-p", "no:holdfast").assert_outcomes(errors=1)
