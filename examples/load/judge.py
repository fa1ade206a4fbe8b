"""Compare the rows of both consumers with the files in S3.

These are pure functions: `run` reads S3 and the databases.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from examples.harness.measures import Measure, is_right

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINES = {
    "doubled": "customers with doubled rows",
    "lost": "customers with lost rows",
    "stale": "customers with rows of an older version",
    "left over": "customers with rows of a deleted file",
    "partial": "customers with a part of a file",
}
"""The title of each kind of mistake."""


class Content(NamedTuple):
    """The rows of one version of a file."""

    customer: str
    rows: int
    cents: int


class Current(NamedTuple):
    """The newest version of a file in S3."""

    version: str
    content: Content


Rows = dict[str, dict[str, Content]]
"""The rows in a database, by file and version."""


@dataclass
class Column:
    """One consumer's result."""

    customers_right: int = 0
    rows: int = 0
    customers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The customers with each kind of mistake."""
    files: dict[str, set[str]] = field(default_factory=dict)
    """The mistakes of each wrong file."""


@dataclass(frozen=True)
class Result:
    """The whole outcome."""

    measures: Sequence[Measure]
    columns: Mapping[str, Column]
    by_story: Mapping[str, Mapping[str, int]]
    """For each story the number of its files, and for each side the number of wrong ones."""
    customers: int
    rows: int

    def is_right(self, side: str) -> bool:
        """True if the side is right in every line that applies to it. A side that was not there is not right."""
        return side in self.columns and is_right(self.measures, side)


def mistakes(expected: Current | None, found: Mapping[str, Content]) -> set[str]:
    """Return the mistakes in the rows of one file."""
    if expected is None:
        return {"left over"} if found else set()
    kinds = {"stale"} if any(version != expected.version for version in found) else set()
    present = found.get(expected.version)
    if present is None:
        return kinds or {"lost"}
    if present.rows > expected.content.rows:
        kinds.add("doubled")
    elif present != expected.content:
        kinds.add("partial")
    return kinds


def column(expected: Mapping[str, Current | None], found: Rows, owners: Mapping[str, str]) -> Column:
    """Compare one consumer's rows with the files.

    :param expected: the newest version of each file. None if it was deleted.
    :param owners: the customer of each file.
    """
    result = Column(rows=sum(content.rows for versions in found.values() for content in versions.values()))
    for key in expected.keys() | found.keys():
        if kinds := mistakes(expected.get(key), found.get(key, {})):
            result.files[key] = kinds
            for kind in kinds:
                result.customers[kind].add(owners[key])
    wanted = totals({key: {now.version: now.content} for key, now in expected.items() if now})
    counted = totals(found)
    # Equal totals do not suffice: the mistakes of two files can cancel out.
    wrong = set().union(*result.customers.values())
    customers = set(owners.values())
    result.customers_right = sum(counted[name] == wanted[name] and name not in wrong for name in customers)
    return result


def totals(rows: Mapping[str, Mapping[str, Content]]) -> dict[str, tuple[int, int]]:
    """Return the number of rows and the cents of each customer."""
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for versions in rows.values():
        for customer, count, cents in versions.values():
            sums[customer] = (sums[customer][0] + count, sums[customer][1] + cents)
    return sums


def judge(
    expected: Mapping[str, Current | None],
    found: Mapping[str, Rows],
    stories: Mapping[str, str],
    owners: Mapping[str, str],
    further: Sequence[Measure],
) -> Result:
    """Judge the sides of `found`. `further` are lines about the run."""
    columns = {side: column(expected, rows, owners) for side, rows in found.items()}
    rows = sum(now.content.rows for now in expected.values() if now)
    customers = len(set(owners.values()))
    measures = [
        Measure("customers with the right counts", {s: c.customers_right for s, c in columns.items()}, customers),
        Measure("rows in the table", {s: c.rows for s, c in columns.items()}, rows),
    ]
    for kind, title in LINES.items():
        measures.append(Measure(title, {side: len(c.customers[kind]) for side, c in columns.items()}))
    by_story: dict[str, dict[str, int]] = {}
    for key, story in stories.items():
        line = by_story.setdefault(story, dict.fromkeys(("files", *columns), 0))
        line["files"] += 1
        for side, c in columns.items():
            line[side] += key in c.files
    return Result([*measures, *further], columns, by_story, customers, rows)
