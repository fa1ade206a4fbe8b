"""The argument of a processor, its return value, and how it is imported."""

import io
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

import intake_ledger
from intake_ledger import Commit, ObjectChange, ObjectGone, Unprocessable
from intake_ledger.processor.object_change import as_commit, load_processor, make_object_change
from intake_ledger.processor.object_stream import ObjectStream, OpenedObject
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import Change, State, StateKind
from intake_ledger.protocol.errors import Fenced, SettingsError
from intake_ledger.protocol.row import Ordering, Retention, Row
from tests.unit.support import BUCKET, KEY, LEASE, PIPELINE, START, audited, created, make_reason, redriven, reprocess

ONE = State(StateKind.OBJECT, "1", "e1", 5, START)
ULID = "01KA0000000000000000000001"


def claimed(seen: Row | None, change: Change, state: State = ONE, *, now: int = START) -> Row:
    return row_changes.claimed(seen, change, state, owner="me", now=now, lease_until=now + LEASE)


def argument(row: Row, change: Change | None = None, state: State = ONE, *, pipeline: str = PIPELINE) -> ObjectChange:
    """The processor's argument for a claim."""
    return make_object_change(
        change or created(state),
        state,
        row,
        pipeline=pipeline,
        ordering=Ordering.LATEST,
        remaining_seconds=lambda: 12.5,
        opened=OpenedObject(lambda: ObjectStream(io.BytesIO(b"bytes"), 5)),
        output=lambda *_: pytest.fail("no output is written"),
        begin_rejects=lambda *_: pytest.fail("no row is rejected"),
    )


class TestChange:
    """The argument of a processor."""

    def test_the_argument_describes_the_claimed_state(self) -> None:
        """The version is the state's version, also if the message names another."""
        two = replace(ONE, version_id="2", etag="e2", size=9)
        change = argument(claimed(None, created(ONE), two), created(ONE), two)
        assert (change.bucket, change.key, change.kind) == (BUCKET, KEY, "created")
        assert (change.version_id, change.etag, change.size) == ("2", "e2", 9)
        assert (change.event_name, change.event_time) == ("ObjectCreated:Put", START)
        assert (change.attempt, change.fence) == (1, START)
        assert change.remaining_seconds == 12.5
        assert change.open().read() == b"bytes"

    def test_the_argument_is_immutable(self) -> None:
        """An assignment has no effect, so it must fail."""
        with pytest.raises(FrozenInstanceError):
            argument(claimed(None, created(ONE))).key = "other"  # type: ignore[misc]


class TestIdempotencyKey:
    """Stable over the attempts at one change, and different for every other change."""

    @pytest.mark.failure_mode("F72")
    def test_retries_keep_the_key_and_raise_the_fence(self) -> None:
        """After a death, a failure, or a redrive, and for each kind of message."""
        first = claimed(None, created(ONE))
        later = START + 1_000
        keys = {argument(first).idempotency_key}
        for seen in (
            first,
            row_changes.failed(first, make_reason("no"), review_partition=PIPELINE, now=START),
            row_changes.rejected(first, make_reason("no"), review_partition=PIPELINE, now=START),
            row_changes.exhausted(first, created(ONE), review_partition=PIPELINE, now=START),
        ):
            for change in (created(ONE), audited(ONE), redriven(created(ONE), first.fence)):
                row = claimed(seen, change, now=later)
                assert row.fence > first.fence
                keys.add(argument(row, change).idempotency_key)
        assert len(keys) == 1

    def test_a_state_that_returns_has_another_key(self) -> None:
        """A, B, A without versions; an un-delete; a rollback."""
        done = row_changes.committed(claimed(None, created(ONE)), None, now=START, retention=Retention(1))
        two = replace(ONE, version_id="2")
        between = row_changes.committed(
            claimed(done, created(two), two, now=START + 1), None, now=START + 1, retention=Retention(1)
        )
        again = claimed(between, created(ONE), now=START + 2)
        assert argument(again).idempotency_key != argument(done).idempotency_key

    def test_a_reprocess_has_another_key(self) -> None:
        """A reprocess request asks for the effect again. Its retries keep the new key."""
        first = claimed(None, created(ONE))
        done = row_changes.committed(first, None, now=START, retention=Retention(1))
        asked = claimed(done, reprocess(ULID), now=START + 1)
        retry = claimed(asked, reprocess(ULID), now=START + 2)
        assert argument(asked).idempotency_key != argument(first).idempotency_key
        assert argument(retry).idempotency_key == argument(asked).idempotency_key

    def test_another_object_version_bucket_or_pipeline_has_another_key(self) -> None:
        """All of them claimed in the same millisecond."""
        row = claimed(None, created(ONE))
        keys = [
            argument(row).idempotency_key,
            argument(row, state=replace(ONE, version_id="2")).idempotency_key,
            argument(row, replace(created(ONE), key="k")).idempotency_key,
            argument(row, replace(created(ONE), bucket="b")).idempotency_key,
            argument(row, pipeline="Other").idempotency_key,
        ]
        assert len(set(keys)) == len(keys)
        assert all(len(key) == 32 for key in keys)


class TestCommitIdentity:
    """The return value of a processor."""

    @pytest.mark.parametrize(
        ("returned", "identity"), [(None, None), ("x", "x"), ("", ""), (Commit("x"), "x"), (Commit(), None)]
    )
    def test_a_commit_a_text_or_none_is_accepted(self, returned: object, identity: str | None) -> None:
        """The same without ceremony."""
        assert as_commit(returned).identity == identity

    @pytest.mark.parametrize("returned", [1, True, b"x", {"id": 1}, ["x"], object(), Commit(7)])  # type: ignore[arg-type]
    def test_any_other_return_value_is_an_error(self, returned: object) -> None:
        """It names the type that came back."""
        with pytest.raises(TypeError, match="expected a Commit, a text or None"):
            as_commit(returned)


class TestLoading:
    """The import of the processor."""

    @pytest.fixture
    def code(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A directory on the path, as Lambda has the function's code."""
        monkeypatch.syspath_prepend(tmp_path)
        before = set(sys.modules)
        yield tmp_path
        for name in set(sys.modules) - before:
            del sys.modules[name]

    def test_a_function_of_a_module_is_loaded(self, code: Path) -> None:
        """By `module:function`; the module may be inside a package."""
        (code / "team_a").mkdir()
        (code / "team_a" / "__init__.py").write_text("")
        (code / "team_a" / "invoices.py").write_text("def process(change): return 'done'")
        change = argument(claimed(None, created(ONE)))
        assert load_processor("team_a.invoices:process")(change) == "done"

    def test_a_missing_module_is_named(self, code: Path) -> None:
        """Both names are in the error."""
        with pytest.raises(SettingsError, match=r"'team_b:process' was not found: .* no module 'team_b'"):
            load_processor("team_b:process")

    @pytest.mark.parametrize("entrypoint", ["team_p.invoices:process", "team_q.invoices:process", "team_r.a.b:process"])
    def test_a_module_in_a_missing_package_is_named(self, code: Path, entrypoint: str) -> None:
        """Each part of the name may be missing, and a module may not be a package."""
        (code / "team_q").mkdir()
        (code / "team_q" / "__init__.py").write_text("")
        (code / "team_r.py").write_text("")
        with pytest.raises(SettingsError, match=f"'{entrypoint}' was not found"):
            load_processor(entrypoint)

    @pytest.mark.parametrize("name", ["missing", "NOT_A_FUNCTION"])
    def test_a_missing_function_is_named(self, code: Path, name: str) -> None:
        """Or that cannot be called."""
        (code / "team_c.py").write_text("NOT_A_FUNCTION = 3")
        with pytest.raises(SettingsError, match=f"team_c has no function {name!r}"):
            load_processor(f"team_c:{name}")

    @pytest.mark.parametrize("entrypoint", ["team_d", "team_d:", ":process", ":", ""])
    def test_an_entrypoint_needs_module_and_function(self, code: Path, entrypoint: str) -> None:
        """A module or a function alone is not enough."""
        (code / "team_d.py").write_text("")
        with pytest.raises(SettingsError, match="expected module:function"):
            load_processor(entrypoint)

    def test_errors_of_the_module_itself_propagate(self, code: Path) -> None:
        """A dependency that is missing is not a missing processor."""
        (code / "team_e.py").write_text("import no_such_dependency")
        with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
            load_processor("team_e:process")
        (code / "team_g").mkdir()
        (code / "team_g" / "__init__.py").write_text("")
        (code / "team_g" / "main.py").write_text("import team_g.no_such_part")
        with pytest.raises(ModuleNotFoundError, match="no_such_part"):
            load_processor("team_g.main:process")
        (code / "team_f.py").write_text("1 / 0")
        with pytest.raises(ZeroDivisionError):
            load_processor("team_f:process")


def test_the_package_exports_only_what_processors_need() -> None:
    """The package exports the names that a processor imports, and nothing else."""
    assert sorted(intake_ledger.__all__) == [
        "Commit",
        "FileSet",
        "InvalidEffectError",
        "InvalidOutputError",
        "KeyedMessage",
        "NotYet",
        "ObjectChange",
        "ObjectGone",
        "ObjectReadError",
        "ObjectStream",
        "Output",
        "OutputConflict",
        "OutputError",
        "Overtaken",
        "Rejects",
        "SchemaDrift",
        "SetFile",
        "TooManyRejects",
        "Unprocessable",
    ]
    assert issubclass(Unprocessable, Exception)
    assert issubclass(ObjectGone, Exception)
    assert issubclass(SettingsError, ValueError)
    assert not issubclass(Fenced, (Unprocessable, ObjectGone))
