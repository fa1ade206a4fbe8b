"""The example that loads CSV files into PostgreSQL, without AWS: judge, chart, script, and both loaders."""

import importlib
import io
import random
import xml.etree.ElementTree as ET
from types import ModuleType
from typing import Any

import psycopg
import pytest
from examples.harness.measures import Measure
from examples.load import chart, gaps, script
from examples.load.database import Databases
from examples.load.judge import Content, Current, judge, mistakes
from examples.load.material import Csv, customer_of, key_of
from examples.postgres import Postgres

from cdk_intake_ledger.testing import Fault, LocalPipeline

NEW = Content("ann", 10, 500)
OLD = Content("ann", 8, 300)
TWICE = Content("ann", 20, 1000)
ANN, BOB = key_of("ann", 1), key_of("bob", 1)


class TestJudge:
    @pytest.mark.parametrize(
        ("expected", "found", "kinds"),
        [
            (Current("v2", NEW), {"v2": NEW}, set()),
            (None, {}, set()),
            (Current("v2", NEW), {"v2": TWICE}, {"doubled"}),
            (Current("v2", NEW), {}, {"lost"}),
            (Current("v2", NEW), {"v1": OLD}, {"stale"}),
            (Current("v2", NEW), {"v1": OLD, "v2": TWICE}, {"stale", "doubled"}),
            (Current("v2", NEW), {"v2": Content("ann", 9, 450)}, {"partial"}),
            (Current("v2", NEW), {"v2": Content("ann", 10, 450)}, {"partial"}),
            (None, {"v1": OLD}, {"left over"}),
        ],
    )
    def test_each_mistake_has_its_name(
        self, expected: Current | None, found: dict[str, Content], kinds: set[str]
    ) -> None:
        assert mistakes(expected, found) == kinds

    @staticmethod
    def _judge(**found: dict[str, dict[str, Content]]) -> Any:
        expected: dict[str, Current | None] = {ANN: Current("v2", NEW), BOB: Current("v1", Content("bob", 3, 30))}
        owners = {key: customer_of(key) for key in expected}
        return judge(expected, found, dict.fromkeys(expected, "story"), owners, [Measure("only", {"ledger": 0})])

    RIGHT = {ANN: {"v2": NEW}, BOB: {"v1": Content("bob", 3, 30)}}  # noqa: RUF012

    def test_a_right_column_is_right_in_every_line_that_applies(self) -> None:
        result = self._judge(ledger=self.RIGHT, naive={**self.RIGHT, ANN: {"v2": TWICE}})
        assert (result.is_right("ledger"), result.is_right("naive")) == (True, False)
        values = {measure.name: measure.values for measure in result.measures}
        assert values["customers with the right counts"] == {"ledger": 2, "naive": 1}
        assert values["rows in the table"] == {"ledger": 13, "naive": 23}
        assert values["customers with doubled rows"] == {"ledger": 0, "naive": 1}
        assert result.by_story == {"story": {"files": 2, "ledger": 0, "naive": 1}}

    def test_mistakes_that_cancel_out_are_found(self) -> None:
        """The customer's totals are right, but one file is doubled and another one lost."""
        first, second = key_of("ann", 1), key_of("ann", 2)
        expected: dict[str, Current | None] = {key: Current("v1", NEW) for key in (first, second)}
        result = judge(expected, {"ledger": {first: {"v1": TWICE}}}, {}, {first: "ann", second: "ann"}, [])
        assert result.columns["ledger"].rows == result.rows
        assert result.columns["ledger"].customers_right == 0
        assert not result.is_right("ledger")


class TestChart:
    @pytest.mark.parametrize("values", [[], [0.0], [5.0, 70_000.0]])
    def test_the_picture_is_xml_and_stays_within_its_frame(self, values: list[float]) -> None:
        """Also for a run without duplicates."""
        picture = ET.fromstring(chart.gaps_chart(values, values, scale=300))
        width = float(picture.attrib["viewBox"].split()[2])
        bars = [bar for bar in picture.iter("rect") if bar.attrib["class"] == "ledger"]
        assert bool(bars) is bool(values)
        assert all(0 <= float(bar.attrib["x"]) <= width for bar in picture.iter("rect"))
        titles = [text.text for text in picture.iter("text") if text.attrib["class"] == "label"]
        assert titles[1] == f"DuplicateAge of {len(values)} duplicates, as the pipeline measured it"

    def test_gaps_below_a_millisecond_have_their_own_bar(self) -> None:
        """Left of the axis. They hide no gap of a millisecond."""
        axis = chart.Scale([50.0])
        below, first, *others = axis.bars([0.0, 0.4, 0.99, 1.0, 1.7, 50.0])
        assert (below[1], below[2]) == (axis(1), 3)
        assert (first[0], first[2]) == (axis(1), 2)
        assert [count for _, _, count in others if count] == [1]


def test_gaps_are_from_the_articles_range() -> None:
    dice = random.Random(1)
    drawn = [gaps.draw(dice, 300) * 300 for _ in range(2_000)]
    assert gaps.SHORTEST_SECONDS <= min(drawn) < 0.1
    assert 15_000 < max(drawn) <= gaps.LONGEST_SECONDS


@pytest.mark.parametrize("short", [True, False])
def test_a_seed_gives_one_script_with_every_story_and_every_fault(*, short: bool) -> None:
    told = script.write(seed=7, short=short)
    assert told == script.write(seed=7, short=short)
    by_hand = {script.KILLED, script.OVERTAKEN, script.OVERTAKEN_BY_REMOVAL, script.SLOW}
    assert set(told.stories.values()) == {story.name for story in script.STORIES} | by_hand
    kinds = {(fault.side, fault.kind) for fault in told.faults}
    assert kinds == {(side, kind) for side in ("ledger", "naive") for kind in ("killed", "late", "slow")}
    if not short:
        assert {fault.step for fault in told.faults if fault.side == "ledger"} == set(script.STEPS)
    assert {operation.key for operation in told.first} == {f.key for f in told.faults if f.kind != "killed"}
    fates = [operation.fate for operation in told.operations]
    assert any(fate.lost for fate in fates)
    assert any(fate.copies for fate in fates)
    assert len({customer_of(key) for key in told.stories}) == told.customers


CONTENT = Csv("ann", ((1, 100), (2, 250)))


@pytest.fixture
def databases(postgres: Postgres) -> Databases:
    return Databases.create(postgres, script.write(seed=1, short=True).faults)


class TestLedgersLoader:
    @pytest.fixture(autouse=True)
    def _database(self, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ORDERS", databases.ledger)

    @pytest.fixture
    def pipeline(self) -> LocalPipeline:
        orders = importlib.import_module("examples.load.functions.orders")
        return LocalPipeline(orders.process, deletes=True)

    def test_faults_change_nothing(self, pipeline: LocalPipeline, databases: Databases) -> None:
        """Copies, the wrong order, and workers that die after their transaction or are overtaken in it."""
        newer = Csv("ann", ((1, 100), (2, 250), (3, 70)))
        for content in (CONTENT, newer):
            pipeline.put(ANN, content.read_bytes())
        pipeline.put(BOB, Csv("bob", ((9, 1),)).read_bytes())
        pipeline.delete(BOB)
        pipeline.duplicate()
        pipeline.reverse()
        pipeline.next(Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN)
        pipeline.run()
        rows = databases.rows("ledger")
        assert [[*versions.values()] for versions in rows.values()] == [[Content("ann", 3, 420)]]

    def test_a_row_that_is_no_order_is_rejected(self, pipeline: LocalPipeline, databases: Databases) -> None:
        """Its file leaves no rows, not even those before it."""
        pipeline.put(ANN, CONTENT.read_bytes() + b"ann,not a number,1\n")
        pipeline.run()
        assert len(pipeline.dead_letters) == 1
        assert not databases.rows("ledger")


class TestNaiveLoader:
    """It is right if each event comes once and in order. Therefore the demonstration's faults make it wrong."""

    class _S3:
        versions: dict[str, bytes] = {"v1": CONTENT.read_bytes(), "v2": Csv("ann", ((5, 5),)).read_bytes()}  # noqa: RUF012

        def get_object(self, *, VersionId: str, **_: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
            return {"Body": io.BytesIO(self.versions[VersionId])}

    @pytest.fixture
    def naive(self, databases: Databases, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        monkeypatch.setenv("ORDERS", databases.naive)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        module = importlib.import_module("examples.load.functions.naive")
        monkeypatch.setattr(module, "s3", self._S3())
        return module

    @staticmethod
    def _event(version: str, name: str = "ObjectCreated:Put") -> dict[str, Any]:
        item = {"key": ANN, "versionId": version}
        return {"eventName": name, "s3": {"bucket": {"name": "uploads"}, "object": item}}

    def test_each_event_once_and_in_order_is_right(self, naive: ModuleType, databases: Databases) -> None:
        naive.handle(self._event("v1"))
        assert databases.rows("naive") == {ANN: {"v1": Content("ann", 2, 350)}}
        naive.handle(self._event("v2"))
        assert databases.rows("naive") == {ANN: {"v2": Content("ann", 1, 5)}}
        naive.handle(self._event("marker", "ObjectRemoved:DeleteMarkerCreated"))
        assert databases.rows("naive") == {}

    def test_a_copy_of_an_event_doubles_nothing_and_brings_an_older_version_back(
        self, naive: ModuleType, databases: Databases
    ) -> None:
        for _ in range(2):
            naive.handle(self._event("v1"))
        assert databases.rows("naive") == {ANN: {"v1": Content("ann", 2, 350)}}
        naive.handle(self._event("v2"))
        naive.handle(self._event("v1"))
        assert databases.rows("naive") == {ANN: {"v1": Content("ann", 2, 350)}}


def test_faults_that_have_happened_are_counted(databases: Databases) -> None:
    assert databases.fired("ledger") == 0
    with psycopg.connect(databases.faults) as connection:
        connection.execute("UPDATE faults SET fired_at = now(), outcome = 'refused' WHERE kind = 'late'")
    outcomes = databases.outcomes("ledger")
    assert outcomes["late"]["refused"] == databases.fired("ledger") > 0
    assert not outcomes["killed"]
