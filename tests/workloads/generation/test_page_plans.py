"""Pages of the library and of generations are read from an index that has no other rows than those of the page."""

import sqlite3
from contextlib import closing

import pytest

from holdfast.store.migrate import migrate, sqlite_path
from holdfast.store.render import SQLITE, render
from holdfast.workloads.generation import ext

ASSET, TAG, REQUEST = (f"holdfast_generation_{table}" for table in ("asset", "tag", "request"))
PLANS = {
    "library": [f"SEARCH {ASSET} USING INDEX {ASSET}_page (tenant=? AND user_id=? AND id<?)"],
    "library_of_favorites": [f"SEARCH {ASSET} USING INDEX {ASSET}_favorite (tenant=? AND user_id=? AND id<?)"],
    "library_of_tag": [
        f"SEARCH tagged USING COVERING INDEX sqlite_autoindex_{TAG}_1 "
        "(tenant=? AND user_id=? AND tag=? AND asset_id<?)",
        f"SEARCH asset USING INDEX sqlite_autoindex_{ASSET}_1 (id=?)",
    ],
    "page": [f"SEARCH {REQUEST} USING INDEX {REQUEST}_page (tenant=? AND user_id=? AND id<?)"],
    "page_of_status": [f"SEARCH {REQUEST} USING INDEX {REQUEST}_status (tenant=? AND user_id=? AND status=? AND id<?)"],
}


@pytest.mark.parametrize("name", PLANS)
async def test_a_page_is_read_from_its_index(fresh_sqlite_url: str, name: str) -> None:
    """Nothing is sorted either: that would be a step of the plan."""
    await migrate(fresh_sqlite_url, [ext])
    statement = render(getattr(ext.q, name), SQLITE, 1)
    with closing(sqlite3.connect(sqlite_path(fresh_sqlite_url))) as db:
        plan = db.execute(f"EXPLAIN QUERY PLAN {statement.text}", dict.fromkeys(statement.params))
        assert [row[3] for row in plan] == PLANS[name]
