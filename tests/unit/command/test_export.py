"""`export`: the rows of the ledger as a file for SQL."""

import csv
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Unprocessable
from intake_ledger.protocol.row import Ordering, Row, Status
from tests.unit.command.support import NAME, Site, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
ROWS = {
    "eu/a.csv": Row(
        Status.PROCESSED,
        7,
        version_id="v2",
        size=12,
        committed_state="v#v2",
        committed_at=START + HOUR,
        committed_fence=START,
        processor_version="0123456789ab",
        commit_id="row 4",
        first_claimed_at=START,
        updated_at=START + HOUR,
    ),
    "eu/b.csv": Row(
        Status.PROCESSING,
        9,
        version_id="v4",
        committed_state="v#v3",
        committed_at=START,
        committed_fence=START + HOUR,
        updated_at=START + 2 * HOUR,
    ),
    'us/a "quoted", name\n.csv': Row(
        Status.REJECTED, 3, version_id="v1", reason="no amount", reason_code="unprocessable", updated_at=START
    ),
}


def filled(site: Site) -> Site:
    for key, row in ROWS.items():
        site.row(key, row)
    return site


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:
    return sit(filled(make_site()))


def exported(person: Person, path: Path, *options: str) -> list[dict[str, Any]]:
    person.types("export", str(path), *options)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_form_has_the_same_values(person: Person, tmp_path: Path) -> None:
    lines = exported(person, tmp_path / "rows.jsonl")
    person.types("export", str(tmp_path / "rows.csv"))
    with (tmp_path / "rows.csv").open(newline="") as file:
        of_csv = [*csv.DictReader(file)]
    shown = [{name: "" if value is None else str(value) for name, value in row.items()} for row in lines]
    assert of_csv == shown
    assert {row["key"] for row in lines} == set(ROWS)


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (("--prefix", "eu/"), {"eu/a.csv", "eu/b.csv"}),
        (("--status", "processed"), {"eu/a.csv"}),
        (("--reason", "unprocessable"), {'us/a "quoted", name\n.csv'}),
        (("--reason", "amount"), {'us/a "quoted", name\n.csv'}),
        (("--since", "HOUR"), {"eu/a.csv", "eu/b.csv"}),
        (("--since", "HOUR", "--before", "LATER"), {"eu/a.csv"}),
        (("--committed-since", "HOUR"), {"eu/b.csv"}),
        (("--committed-before", "HOUR"), {"eu/a.csv"}),
        (("--processor-version", "0123456789ab" + "c" * 52, "--committed-before", "LATER"), {"eu/a.csv"}),
    ],
)
def test_a_selection(person: Person, tmp_path: Path, options: tuple[str, ...], keys: set[str]) -> None:
    times = {
        name: datetime.fromtimestamp(at / 1000, UTC).isoformat()
        for name, at in (("HOUR", START + HOUR), ("LATER", START + 2 * HOUR))
    }
    rows = exported(person, tmp_path / "rows.jsonl", *(times.get(one, one) for one in options))
    assert {row["key"] for row in rows} == keys


def test_rows_of_each_version_have_one_line_each(sit: Callable[..., Person], tmp_path: Path) -> None:
    site = make_site(ordering=Ordering.EVERY_VERSION)
    for version in ("v1", "v2"):
        site.row("a", Row(Status.PROCESSED, 1, version_id=version, committed_state=f"v#{version}"))
    rows = exported(sit(site), tmp_path / "rows.jsonl")
    assert sorted((row["key"], row["version_id"], row["committed"]) for row in rows) == [
        ("a", "v1", True),
        ("a", "v2", True),
    ]


def test_a_removal_that_no_processor_saw_is_no_commit(sit: Callable[..., Person], tmp_path: Path) -> None:
    """Neither of a committed object, nor of a rejected one."""
    site, states = make_site(), {"committed": True, "rejected": False}
    for key, good in states.items():
        local = LocalPipeline(lambda _, good=good: None if good else _refuse())
        local.put(key, "1")
        local.run()
        local.delete(key)
        local.run()
        row = local.row(key)
        assert row is not None
        assert row.settled_as is not None
        site.row(key, row)
    rows = exported(sit(site), tmp_path / "rows.jsonl")
    names = "committed", "commit_time", "committed_state", "committed_fence", "kind"
    assert [[row[name] for name in names] for row in rows] == [[False, None, None, None, "marker"]] * 2


def _refuse() -> None:
    raise Unprocessable("no amount")


def test_the_path_of_a_message_is_its_key(sit: Callable[..., Person], tmp_path: Path) -> None:
    site = make_message_site()
    site.row("o-7", Row(Status.PROCESSED, 1, version_id="m-1", committed_state="v#m-1"))
    [row] = exported(sit(site, audit=False), tmp_path / "rows.jsonl")
    assert (row["path"], row["source_id"], row["version_id"]) == ("o-7", NAME, "m-1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rows.xlsx",), "rows.xlsx has no known form: use a name that ends with .parquet, .csv, .jsonl"),
        (("rows.csv", "--status", "DONE"), "--status DONE is no status of a row: use one of PROCESSING"),
        (("rows.csv", "--before", "noon"), "--before noon is not a time"),
        (("rows.csv", "--reason", "unprocesable"), "--reason unprocesable matches nothing"),
    ],
)
def test_wrong_usage_names_the_value(person: Person, tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    path, *options = arguments
    person.types("export", str(tmp_path / path), *options, ends=2)
    assert says in person.complaint


def test_without_duckdb_the_way_out_is_named(person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    person.types("export", str(tmp_path / "rows.parquet"), ends=2)
    assert "cdk-intake-ledger[cli,export]" in person.complaint


def test_a_file_that_cannot_be_written_leaves_the_former_one(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("the former content")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    person.types("export", str(path), ends=1)
    assert "No space left on device" in person.complaint
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("the former content", [path])
