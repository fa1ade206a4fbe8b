"""The consumer's telemetry: Powertools gets each count once per invocation."""

import json
from dataclasses import replace

import pytest

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.verdict import Ruling, Verdict
from tests.unit.support import created, make_reason

KEY, CHANGE = RowKey("uploads/a", "p@latest"), created(State(StateKind.OBJECT, "v1"))


def values(capsys: pytest.CaptureFixture[str]) -> dict[str, list[float]]:
    """The metrics that were written since the last look."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {name: value for line in lines if "_aws" in line for name, value in line.items() if isinstance(value, list)}


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> PowertoolsTelemetry:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "orders")
    return PowertoolsTelemetry()


def test_each_metric_of_an_invocation_has_one_value(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many records a batch has; and nothing of it is counted again by the next invocation."""
    for _ in range(250):
        telemetry.held_back()
    telemetry.unparseable(make_reason("not JSON"), "m1")
    telemetry.flush()
    assert values(capsys) == {"BreakerOpen": [250.0], "UnreadableMessages": [1.0]}
    telemetry.held_back()
    telemetry.flush()
    assert values(capsys) == {"BreakerOpen": [1.0]}


def test_an_invocation_without_counts_writes_nothing(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.flush()
    assert capsys.readouterr().out == ""


@pytest.mark.failure_mode("F758")
@pytest.mark.parametrize(
    ("change", "counted"),
    [
        (CHANGE, 0),
        (replace(CHANGE, origin=Origin.EVENTBRIDGE), 0),
        (replace(CHANGE, origin=Origin.GROUP), 0),
        (replace(CHANGE, origin=Origin.AUDIT), 1),
        (replace(CHANGE, origin=Origin.REPROCESS, reprocess_id="01J"), 1),
        (replace(CHANGE, rejected_fence=3), 1),
    ],
)
def test_a_claim_for_a_message_of_a_recovery_counts(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], change: Change, counted: int
) -> None:
    """A ruling does not: the messages that are still not due are no progress."""
    row = Row(Status.PROCESSING, 1, version_id="v1")
    telemetry.decided(change, Ruling(Verdict.BUSY, "why", row), now=1)
    telemetry.decided(change, Claim(KEY, change, State(StateKind.OBJECT, "v1"), row, None, "why"), now=1)
    telemetry.flush()
    assert len(values(capsys).get("Recovering", [])) == counted


class TestRepeats:
    """F111: an attempt that may repeat an effect is told before it begins, since its worker may die in it."""

    @staticmethod
    def _answer(verdict: Verdict, seen: Row, *, attempts: int = 1) -> Claim | Ruling:
        if verdict is Verdict.ACCEPTED:
            row = replace(seen, status=Status.PROCESSING, attempts=attempts, lease_until=2)
            return Claim(KEY, CHANGE, State(StateKind.OBJECT, "v1"), row, seen, "why")
        return Ruling(verdict, "why", seen)

    @pytest.mark.failure_mode("F111")
    @pytest.mark.parametrize(
        ("verdict", "seen", "attempts", "told"),
        [
            (Verdict.ACCEPTED, Row(Status.PROCESSED, 1), 1, set()),
            (Verdict.ACCEPTED, Row(Status.FAILED, 1), 2, {"Accepted", "Retries"}),
            (Verdict.ACCEPTED, Row(Status.PROCESSING, 1, lease_until=1), 2, {"Accepted", "Retries", "LapsedLeases"}),
            # The worker died on another state of the key.
            (Verdict.ACCEPTED, Row(Status.PROCESSING, 1, lease_until=1), 1, {"Accepted", "LapsedLeases"}),
            # No worker died: the start of its execution was refused.
            (Verdict.ACCEPTED, Row(Status.PROCESSING, 1, lease_until=1, reason_code="start_refused"), 1, set()),
            # It was taken over and released before.
            (Verdict.ACCEPTED, Row(Status.PROCESSING, 1), 1, set()),
            (Verdict.EXHAUSTED, Row(Status.PROCESSING, 1, lease_until=1), 0, {"Exhausted", "LapsedLeases"}),
            (Verdict.SETTLED, Row(Status.PROCESSING, 1, lease_until=1), 0, {"RemovalsRecorded", "LapsedLeases"}),
            (Verdict.BUSY, Row(Status.PROCESSING, 1, lease_until=1), 0, set()),
        ],
    )
    def test_repeats_are_written_at_the_claim(
        self,
        telemetry: PowertoolsTelemetry,
        capsys: pytest.CaptureFixture[str],
        verdict: Verdict,
        seen: Row,
        attempts: int,
        told: set[str],
    ) -> None:
        """Everything that was counted so far goes with it; a first attempt waits for the end."""
        telemetry.decided(CHANGE, self._answer(verdict, seen, attempts=attempts), now=0)
        assert set(values(capsys)) - {"OldestClaimAge"} == told
        telemetry.flush()
        assert not told & set(values(capsys)), "nothing is counted twice"


@pytest.mark.failure_mode("F470")
def test_a_claim_without_an_outcome_has_its_age(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its message finds it claimed, or takes it over. The oldest claim of an invocation counts."""
    ages = []
    for claimed_at, verdict in ((5, Verdict.BUSY), (2, Verdict.ACCEPTED), (7, Verdict.EXHAUSTED)):
        seen = Row(Status.PROCESSING, 1, lease_until=9, updated_at=claimed_at)
        telemetry.decided(CHANGE, TestRepeats._answer(verdict, seen), now=10)
        telemetry.flush()
        ages.append(values(capsys).get("OldestClaimAge"))
    assert ages == [[5.0], [8.0], [3.0]]
    for claimed_at in (6, 1, 4):
        seen = Row(Status.PROCESSING, 1, lease_until=12, updated_at=claimed_at)
        telemetry.decided(CHANGE, Ruling(Verdict.BUSY, "why", seen), now=10)
    telemetry.decided(CHANGE, Ruling(Verdict.BUSY, "why", Row(Status.FAILED, 1)), now=10)
    telemetry.flush()
    assert values(capsys)["OldestClaimAge"] == [9.0]
    telemetry.decided(CHANGE, Ruling(Verdict.DUPLICATE, "why", Row(Status.PROCESSED, 1)), now=10)
    telemetry.flush()
    assert "OldestClaimAge" not in values(capsys)


class TestOneLine:
    """Each verdict is in one line. The line of an ordinary claim is the line of its end."""

    STATE = State(StateKind.OBJECT, "v1")
    SETTLED = Row(Status.PROCESSED, 1, version_id="v0", committed_state="v#v0")

    def _claim(self, seen: Row | None = None, change: Change = CHANGE) -> Claim:
        row = Row(Status.PROCESSING, 7, version_id="v1", lease_until=9, updated_at=5)
        return Claim(KEY, change, self.STATE, row, seen, "why")

    @staticmethod
    def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str | None]]:
        return [(line.message, getattr(line, "verdict", None)) for line in caplog.records]

    @pytest.mark.parametrize("seen", [None, SETTLED], ids=["a new key", "a settled key"])
    @pytest.mark.parametrize("outcome", OutcomeKind)
    def test_an_ordinary_change_has_one_line(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture, seen: Row | None, outcome: OutcomeKind
    ) -> None:
        """It has the fields of the line of a claim."""
        claim = self._claim(seen, replace(CHANGE, event_time=1))
        with caplog.at_level("INFO"):
            telemetry.decided(claim.change, claim, now=4)
            telemetry.ended(claim, outcome, duration_ms=3)
            telemetry.flush()
        [line] = caplog.records
        assert vars(line).items() >= {
            "message": outcome.lower(),
            "verdict": "ACCEPTED",
            "why": "why",
            "event_age_ms": 3,
            "fence": 7,
            "attempt": 1,
            "key": CHANGE.key,
            "version_id": "v1",
        }.items()  # fmt: skip

    @pytest.mark.parametrize(
        ("seen", "change"),
        [
            pytest.param(Row(Status.FAILED, 1), CHANGE, id="a retry, or after a wait"),
            pytest.param(Row(Status.PROCESSING, 1, lease_until=1), CHANGE, id="a takeover"),
            pytest.param(Row(Status.PROCESSING, 1), CHANGE, id="of a released claim"),
            pytest.param(Row(Status.REJECTED, 1), CHANGE, id="after a rejection"),
            pytest.param(replace(SETTLED, late_writes=frozenset({"v#v2"})), CHANGE, id="after a late write"),
            pytest.param(None, replace(CHANGE, reprocess_id="01"), id="a reprocess"),
            pytest.param(None, replace(CHANGE, rejected_fence=1), id="a redrive"),
        ],
    )
    def test_any_other_claim_has_a_line_before_its_attempt(
        self,
        telemetry: PowertoolsTelemetry,
        caplog: pytest.LogCaptureFixture,
        seen: Row | None,
        change: Change,
    ) -> None:
        claim = self._claim(seen, change)
        with caplog.at_level("INFO"):
            telemetry.decided(change, claim, now=4)
            assert self._lines(caplog) == [("verdict", "ACCEPTED")]
            telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=3)
        assert self._lines(caplog) == [("verdict", "ACCEPTED"), ("committed", None)]

    @pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.ACCEPTED])
    def test_a_change_without_a_claim_has_a_line(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture, verdict: Verdict
    ) -> None:
        with caplog.at_level("INFO"):
            telemetry.decided(CHANGE, Ruling(verdict, "why", self.SETTLED), now=4)
        assert self._lines(caplog) == [("verdict", verdict)]

    @pytest.mark.failure_mode("F440")
    def test_the_line_of_a_forgotten_key_does_not_name_it(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO"):
            telemetry.decided(CHANGE, Ruling(Verdict.FORGOTTEN, "why"), now=4)
        [line] = caplog.records
        assert CHANGE.key not in map(str, vars(line).values())

    def test_a_claim_that_does_not_end_has_a_line_after_its_batch(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It was released, or AWS did not answer. An end that comes later has no verdict."""
        claim = self._claim()
        with caplog.at_level("INFO"):
            telemetry.decided(CHANGE, claim, now=4)
            assert self._lines(caplog) == []
            telemetry.flush()
            telemetry.flush()
            telemetry.ended(claim, OutcomeKind.FENCED, duration_ms=3)
        assert self._lines(caplog) == [("verdict", "ACCEPTED"), ("fenced", None)]
        assert caplog.records[0].fence == 7  # type: ignore[attr-defined]

    def test_each_claim_of_a_key_in_one_batch_has_a_line(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The first one was released."""
        first = self._claim()
        second = replace(first, row=replace(first.row, fence=8))
        with caplog.at_level("INFO"):
            for claim in (first, second):
                telemetry.decided(CHANGE, claim, now=4)
            telemetry.ended(second, OutcomeKind.COMMITTED, duration_ms=3)
            telemetry.flush()
        assert self._lines(caplog) == [("committed", "ACCEPTED"), ("verdict", "ACCEPTED")]

    def test_a_repeated_claim_does_not_write_the_lines_of_others(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its counts are written at once, since it may end the worker."""
        claim, other = self._claim(), replace(self._claim(Row(Status.FAILED, 1)), key=RowKey("uploads/b", "p@latest"))
        with caplog.at_level("INFO"):
            telemetry.decided(CHANGE, claim, now=4)
            telemetry.decided(CHANGE, replace(other, row=replace(other.row, attempts=2)), now=4)
            telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=3)
        assert self._lines(caplog) == [("verdict", "ACCEPTED"), ("committed", "ACCEPTED")]

    def test_the_line_says_which_version_the_message_named(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """S3 may show a newer one by then."""
        claim = self._claim(change=replace(CHANGE, state=State(StateKind.OBJECT, "v0")))
        with caplog.at_level("INFO"):
            telemetry.decided(claim.change, claim, now=4)
            telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=3)
        [line] = caplog.records
        assert vars(line).items() >= {"version_id": "v1", "message_version_id": "v0"}.items()

    @pytest.mark.parametrize("verdict", [Verdict.ACCEPTED, Verdict.EXHAUSTED, Verdict.SETTLED])
    def test_a_takeover_names_the_claim_that_has_no_line(
        self, telemetry: PowertoolsTelemetry, caplog: pytest.LogCaptureFixture, verdict: Verdict
    ) -> None:
        dead = Row(Status.PROCESSING, 3, version_id="v0", attempts=2, lease_until=4, updated_at=2)
        answer = self._claim(dead) if verdict is Verdict.ACCEPTED else Ruling(verdict, "why", dead)
        with caplog.at_level("INFO"):
            telemetry.decided(CHANGE, answer, now=5)
        [line] = caplog.records
        assert vars(line)["lapsed"] == {"attempt": 2, "fence": 3, "version_id": "v0", "updated_at": 2}


class TestDuplicateAge:
    """The time from the commit to a further message about the state comes from the row that was judged."""

    COMMITTED = Row(Status.PROCESSED, fence=1, committed_state="v#v1", updated_at=1_000)

    @pytest.mark.parametrize(
        ("verdict", "change", "row", "now", "age"),
        [
            (Verdict.DUPLICATE, CHANGE, COMMITTED, 23_162, 22_162),
            # The clock of the worker that committed was ahead.
            (Verdict.DUPLICATE, CHANGE, COMMITTED, 990, 0),
            (Verdict.STALE, CHANGE, COMMITTED, 23_162, None),
            (Verdict.DUPLICATE, replace(CHANGE, reprocess_id="01"), COMMITTED, 23_162, None),
            # An attempt on another version came after the commit, and its version no longer existed.
            (Verdict.DUPLICATE, CHANGE, replace(COMMITTED, reason="the version is gone"), 23_162, None),
        ],
        ids=["a copy", "clocks differ", "another state", "a request to reprocess", "changed after the commit"],
    )
    def test_only_copies_of_a_committed_state_have_one(
        self,
        telemetry: PowertoolsTelemetry,
        capsys: pytest.CaptureFixture[str],
        caplog: pytest.LogCaptureFixture,
        verdict: Verdict,
        change: Change,
        row: Row,
        now: int,
        age: int | None,
    ) -> None:
        telemetry.decided(change, Ruling(verdict, "why", row), now=now)
        [line] = caplog.records
        assert getattr(line, "duplicate_age_ms", None) == age
        telemetry.flush()
        assert values(capsys).get("DuplicateAge") == (None if age is None else [float(age)])

    def test_each_copy_has_its_own_value(
        self, telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """CloudWatch computes percentiles from them. More than a metric can hold are written in parts."""
        for n in range(250):
            telemetry.decided(CHANGE, Ruling(Verdict.DUPLICATE, "why", self.COMMITTED), now=1_000 + n)
        capsys.readouterr()
        telemetry.flush()
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        ages = [age for line in lines for age in line.get("DuplicateAge", [])]
        assert ages == [float(n) for n in range(250)]
        assert sum(sum(line.get("Duplicates", [])) for line in lines) == 250
        telemetry.decided(CHANGE, Ruling(Verdict.STALE, "why", self.COMMITTED), now=0)
        telemetry.flush()
        assert "DuplicateAge" not in values(capsys)


@pytest.mark.parametrize(
    ("change", "lag"),
    [
        (replace(CHANGE, event_time=1_000), 4_500),
        # The worker's clock is behind S3's.
        (replace(CHANGE, event_time=9_000), 0),
        # The audit's messages report no event.
        (replace(CHANGE, event_time=None), None),
    ],
)
def test_the_lag_from_event_to_commit_is_measured(
    telemetry: PowertoolsTelemetry,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    change: Change,
    lag: int | None,
) -> None:
    """Failed attempts have none. The log line has it too."""
    row = Row(Status.PROCESSING, 1, attempts=1, updated_at=5_000)
    claim = Claim(KEY, change, State(StateKind.OBJECT, "v1"), row, None, "why")
    telemetry.ended(claim, OutcomeKind.FAILED, duration_ms=500)
    telemetry.flush()
    assert "CommitLag" not in values(capsys)
    telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=500)
    telemetry.flush()
    assert values(capsys).get("CommitLag") == (None if lag is None else [float(lag)])
    assert getattr(caplog.records[-1], "commit_lag_ms", None) == lag


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("commits", [99, 100, 101, 200])
def test_a_batch_whose_lags_fill_a_metric_is_written_without_a_warning(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], commits: int
) -> None:
    """Powertools writes a metric with 100 values at once, and warns of a later write without metrics."""
    row = Row(Status.PROCESSING, 1, attempts=1, updated_at=5_000)
    claim = Claim(KEY, replace(CHANGE, event_time=1_000), State(StateKind.OBJECT, "v1"), row, None, "why")
    for _ in range(commits):
        telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=500)
    capsys.readouterr()
    telemetry.flush()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(len(line.get("CommitLag", [])) for line in lines) == commits
    assert sum(sum(line.get(OutcomeKind.COMMITTED.value, [])) for line in lines) == commits
