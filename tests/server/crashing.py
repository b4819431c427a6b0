"""A server that dies like one whose power fails, at a chosen moment of a verb: `python -m tests.server.crashing`.

HOLDFAST_TEST_CRASH is VERB:MOMENT. `before`: all is written, nothing committed. `after`: it is committed and nobody
was told.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from holdfast.cli import main
from holdfast.engine import Engine
from holdfast.store import PostgresStore, SqliteStore

DIED = 86
METHODS = {
    "create": "_store_each",
    "accept": "accept_created",
    "claim": "claim_once",
    "complete": "complete_many",
    "fail": "fail_many",
}


def dying(verb: str, moment: str) -> None:
    method = METHODS[verb]
    original = getattr(Engine, method)

    async def once(self: Engine, *args: Any, **options: Any) -> Any:
        if moment == "before":
            _never_commit(self.store)
        answer = await original(self, *args, **options)
        if moment == "after":
            os._exit(DIED)
        return answer

    setattr(Engine, method, once)


def _never_commit(store: PostgresStore | SqliteStore) -> None:
    """What would commit by itself is put into a transaction, so that there is a moment before its commit."""
    write = store.write

    async def doomed(work: Callable[[Any], Any], **_: bool) -> Any:
        async def half(tx: Any) -> None:
            await work(tx)
            os._exit(DIED)

        return await write(half)

    store.write = doomed  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    dying(*os.environ["HOLDFAST_TEST_CRASH"].split(":"))
    sys.argv[0] = "holdfast"
    sys.exit(main())
