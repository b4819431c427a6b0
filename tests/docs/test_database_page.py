"""Every table and view is explained."""

import re

from holdfast.store.migrate import migrations
from tests.docs.pages import PAGES, first_cells


def test_every_table_and_view_is_explained_and_every_explained_one_exists() -> None:
    """R003-166."""
    made = {
        table
        for dialect in ("postgres", "sqlite")
        for migration in migrations(dialect)
        for table in re.findall(r"(?m)^CREATE (?:TABLE|VIEW) (\w+)", migration.sql)
    }
    assert set(first_cells(PAGES["docs/reference/database-schema.md"])) == {*made, "holdfast_migrations"}
