"""A job type can need a scope: keys without it do not create its jobs over HTTP."""

import pytest

from holdfast import App
from holdfast.errors import Invalid
from holdfast.extend import Extension
from holdfast.model.key import NewKey
from holdfast.settings import Settings
from tests.server.steps import bearer, serving


def paid() -> Extension:
    extension = Extension("paid")
    print_ = extension.scope("print", "print pages")

    @extension.job("PRINT", scope=print_)
    async def print_page() -> None: ...

    @extension.job("PREVIEW")
    async def preview() -> None: ...

    return extension


async def test_a_key_needs_the_scope_of_the_job_type(store_url: str) -> None:
    app = App(settings=Settings(database_url=store_url), name="scopes")
    app.include(paid())
    async with serving(store_url, app=app) as served:
        for scopes, job_type, status in (
            (["jobs:create"], "PREVIEW", 202),
            (["jobs:create"], "PRINT", 403),
            (["jobs:create", "paid:print"], "PRINT", 202),
            (["paid:print"], "PRINT", 403),
        ):
            headers = bearer((await served.engine.keys.create(NewKey(scopes=scopes))).text)
            job = {"jobType": job_type, "payload": {}}
            alone = await served.http.post("/jobs", json=job, headers=headers)
            batch = await served.http.post("/jobs/batch", json={"jobs": [job]}, headers=headers)
            assert (alone.status_code, batch.status_code) == (status, status), (scopes, job_type, alone.text)
    await app.close()


@pytest.mark.parametrize("scope", ["other:print", "print", "jobs:fly", "Paid:print", ""])
def test_an_extension_needs_scopes_of_its_own_or_of_the_core(scope: str) -> None:
    with pytest.raises(Invalid, match=r"job type 'PRINT': .* is no scope") as caught:

        @Extension("paid").job("PRINT", scope=scope)
        async def print_page() -> None: ...

    assert caught.value.code == "invalid_scope"


def test_an_app_may_name_the_scopes_of_its_extensions() -> None:
    app = App(name="scopes")

    @app.job("PRINT", scope="paid:print")
    async def print_page() -> None: ...

    @app.job("STOP", scope="jobs:cancel")
    async def stop() -> None: ...

    assert app.parts().job_scopes == {"PRINT": "paid:print", "STOP": "jobs:cancel"}
