"""`export` of Parquet: SQL over the rows of the ledger."""

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from tests.unit.command.support import make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.command.test_export import filled
from tests.unit.support import HOUR, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
OF_ATHENA = {"VARCHAR": "string", "BIGINT": "bigint", "BOOLEAN": "boolean", "TIMESTAMP": "timestamp"}


def test_sql_over_the_parquet_tells_what_was_committed(sit: Callable[..., Person], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    assert sit(filled(make_site())).types("export", str(path)).endswith(f"file  {path}\nrows  3\n")
    assert [path] == [*tmp_path.iterdir()]
    with duckdb.connect() as connection:
        times = "epoch_ms(commit_time), epoch_ms(discovery_time)"
        query = f"SELECT key, status, committed, {times}, size FROM '{path}' ORDER BY key"
        rows = connection.sql(query).fetchall()
        columns = connection.sql(f"SELECT column_name, column_type FROM (DESCRIBE '{path}')").fetchall()
    assert rows[:2] == [
        ("eu/a.csv", "PROCESSED", True, START + HOUR, START, 12),
        # The newer version of this key is in work.
        ("eu/b.csv", "PROCESSING", False, START, None, None),
    ]
    table = re.search(r"CREATE EXTERNAL TABLE intake_rows \((.+?)\)\n", PAGE.read_text(), re.DOTALL)
    assert table
    of_page = [tuple(one.split()) for one in table[1].split(",")]
    assert of_page == [(name, OF_ATHENA[kind]) for name, kind in columns]
