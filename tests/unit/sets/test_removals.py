"""Parts that are removed from a finished set: by a person, by a clean-up, or by a lifecycle rule."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.ulids import ulid
from intake_ledger.set_members.forms import FormKind, FormSettings, SetTarget
from intake_ledger.set_members.wakes import Wakes
from intake_ledger.sets.waiting import SetTelemetry
from intake_ledger_testing.local_settings import BUCKET
from tests.unit.sets.bench import SetBench
from tests.unit.sets.stories import expire_rows, runs, tell
from tests.unit.stories import stories
from tests.unit.support import HOUR, MINUTE, one_change

if TYPE_CHECKING:
    from intake_ledger.kinds.sets import Sets

MARKER = FormSettings(FormKind.MARKER, "s/*/_SUCCESS")
QUIET = FormSettings(FormKind.QUIET, "s/*/", quiet_seconds=600)
MANIFEST = FormSettings(FormKind.MANIFEST, "s/*/manifest.json")
CONTROL = {MARKER: "s/1/_SUCCESS", MANIFEST: "s/1/manifest.json"}
KEYS = [f"s/1/{number}.csv" for number in range(4)]
MANY = [f"s/1/{number:03}.csv" for number in range(150)]
"""More parts than a look at an incomplete set reads."""
FORMS = pytest.mark.parametrize("form", [MARKER, QUIET, MANIFEST], ids=["marker", "quiet", "manifest"])


def finished(form: FormSettings, keys: Sequence[str] = KEYS, **options: Any) -> SetBench:
    """A bench with a set that was processed."""
    bench = SetBench(form, **options)
    for key in keys:
        bench.put(key)
    if form in CONTROL:
        bench.put(CONTROL[form], json.dumps([key.rpartition("/")[2] for key in keys]))
    bench.run()
    assert runs(bench) == [keys]
    return bench


def set_key(form: FormSettings) -> str:
    return CONTROL.get(form, "s/1/")


@stories("""
    F274 a part that is removed alone makes a version after the quiet time, and until then the folder misses nothing
        marker, quiet: finished a b c d; delete b; run 6 min; runs a b c d; audit sees no wait; run;
        runs a b c d, a c d; within 10 to 12 min
    F274 a part that comes back or is replaced runs the set at once
        manifest, marker: finished a b c d; delete b; run 3 min; put b as corrected; run; runs a b c d, a b c d;
        within 30 s
    F274 the same in a quiet folder
        quiet: finished a b c d; delete b; run 3 min; put b as corrected; run; runs a b c d, a b c d; within 11 min
    F274 an empty export is processed, and an emptied one only if a person asks or a new one is empty
        marker: close; run; runs -; put a; run; delete a; run; runs -, a; ask; run; runs -, a, -; versions 1 2 1;
        close; run; runs -, a, -, -
    F274 an old finished set is never rejected by a removal or a late wake, and a change is shown
        manifest: finished a b c d; wait 20 d; delete a; run; wake; run; PROCESSED; no dead letters; never waited;
        put b as corrected; run 1 h; reason 1 of 4 parts are missing
    F275 lifecycle expirations are no change of a finished set, also when the audit or another wake looks later
        each form: finished a b c d;
        wait 1 d; expire a; run; wake; run; wait 2 h; audit wakes nothing; run;
        wait 1 d; expire b; run; wake; run; wait 2 h; audit wakes nothing; run;
        wait 1 d; expire c; run; wake; run; wait 2 h; audit wakes nothing; run;
        runs a b c d; no dead letters; PROCESSED
    F275 an expiration before the set was finished says nothing of later removals
        marker: put a; run; expire a; run; put b c d; close; run; delete b; run; runs b c d, c d
    F275 the same in a quiet folder
        quiet: put a; run; expire a; run; put b c d; run; delete b; run; runs a, b c d, c d
    F276 a quiet folder of replicas is processed once, since their commits tell that they arrive now
        quiet: replicate a of 30 d; run 72 s; replicate b of 30 d; run 72 s; replicate c of 30 d; run; runs a b c;
        within 8 to 12 min
    F278 a part that is replaced after the rows expired is shown, and the set waits for the other parts
        manifest: finished a b c d; rows expire; wake; run; no row; put a as corrected; run 1 h; waits;
        reason 3 of 4 parts are missing; put b c d; run; runs a b c d, a b c d
    F278 a replicated manifest is as young as its first commit
        manifest: replicate list a b of 40 d; run 1 h; reason 2 of 2 parts are missing;
        replicate a b of 40 d; run; runs a b
    F282 a late wake does not open an expired set
        each form: finished a b c; rows expire; wake a b c exports/2/a; run; STALE; no row; no dead letters; runs a b c
    F282 a removed part does not open an expired set
        each form: finished a b c; rows expire; delete b; run; STALE; no row; no dead letters; runs a b c
    F282 a part that a person processes again does not open an expired set
        each form: finished a b c; rows expire; ask b; run; STALE; no row; no dead letters; runs a b c
""")
def test_only_people_and_new_versions_change_a_finished_set(story: str) -> None:
    tell(story)


@FORMS
@pytest.mark.failure_mode("F274")
@pytest.mark.parametrize("minutes", [0, 1, 9])
@pytest.mark.parametrize("control", ["first", "last", "never"])
def test_a_folder_that_is_deleted_file_by_file_runs_nothing(form: FormSettings, minutes: int, control: str) -> None:
    """A load that replaces the rows of the set would end without any."""
    bench = finished(form)
    keys = [*KEYS]
    if form in CONTROL and control != "never":
        keys.insert(0 if control == "first" else len(keys), CONTROL[form])
    for key in keys:
        bench.delete(key)
        if minutes:
            bench.run(minutes / 60)
    bench.run()
    assert runs(bench) == [KEYS]
    assert bench.dead_letters == []
    assert bench.known(set_key(form)).status is Status.PROCESSED


@pytest.mark.failure_mode("F274")
@pytest.mark.parametrize("minutes", [1, 20])
def test_a_processor_that_fails_after_removals_is_retried_and_rejected_as_ever(minutes: int) -> None:
    """Its own wait for quiet is over, so each further attempt counts."""
    calls: list[int] = []

    def fail(files: Any) -> None:
        calls.append(len(files.parts))
        if len(files.parts) < len(KEYS):
            raise RuntimeError

    bench = finished(MARKER, process=fail)
    bench.delete(KEYS[0])
    bench.run(minutes / 60)
    bench.run()
    assert calls == [4, 3, 3, 3, 3]
    assert bench.known(CONTROL[MARKER]).status is Status.REJECTED


@pytest.mark.failure_mode("F276")
def test_a_part_that_is_processed_again_does_not_reopen_its_folder() -> None:
    bench = finished(QUIET)
    waits = bench.outcomes["Waiting"]
    bench.now += 2 * HOUR
    request = own_message(Origin.REPROCESS, BUCKET, KEYS[0], reprocess_id=ulid(bench.now, 0))
    bench.parts.send(request)
    bench.run()
    assert bench.part_calls.count(KEYS[0]) == 2
    assert (runs(bench), bench.outcomes["Waiting"]) == ([KEYS], waits)


@pytest.mark.failure_mode("F282")
@pytest.mark.parametrize("form", [MARKER, QUIET, MANIFEST], ids=["marker", "quiet", "manifest"])
@pytest.mark.parametrize("number", [0, 41, 144])
def test_each_part_of_a_large_set_that_is_replaced_after_the_rows_expired_is_shown(
    form: FormSettings, number: int
) -> None:
    """Of an incomplete set, a look reads the rows of a hundred parts. The wake names the replaced part."""
    bench = finished(form, MANY)
    expire_rows(bench)
    bench.put_replica(MANY[number], "corrected", days=40)
    bench.run(1)
    row = bench.known(set_key(form))
    assert row.waiting_since is not None
    assert "149 of 150 parts are missing" in str(row.reason)
    assert bench.run_audit().oldest_waiting_ms is not None


@pytest.mark.failure_mode("F282")
def test_the_look_of_an_expired_set_needs_no_further_request_or_row() -> None:
    bench = finished(MANIFEST, MANY)
    expire_rows(bench)
    looks = []
    for parts in ([], [MANY[144]]):
        bench.dynamodb.requests.clear()
        bench.send(own_message(Origin.PART, BUCKET, CONTROL[MANIFEST], parts=parts))
        bench.run()
        looks.append(list(bench.dynamodb.requests))
    assert looks[0] == looks[1]


@pytest.mark.failure_mode("F283")
def test_a_wake_names_the_parts_of_all_messages_of_its_batch() -> None:
    """A message of another part, whose row has expired, comes before that of the replaced one."""
    bench = finished(MANIFEST, MANY)
    expire_rows(bench)
    bench.parts.send(own_message(Origin.AUDIT, BUCKET, MANY[41]))
    bench.put(MANY[144], "corrected")
    bench.wakes.clear()
    bench.run(1)
    assert len(bench.wakes) == 1
    assert bench.known(CONTROL[MANIFEST]).waiting_since is not None


@pytest.mark.failure_mode("F283")
def test_more_parts_than_a_look_reads_have_a_wake_for_each_hundred() -> None:
    """Their keys may have 1,024 bytes each. A message with all of them would be refused."""
    sent: list[str] = []
    bench = SetBench(MANIFEST)
    wakes = Wakes(
        [], cast("Sets", bench.new_worker().kind).membership, bucket=BUCKET, send=lambda _, body: sent.append(body)
    )
    target = SetTarget("sets", "url", MANIFEST)
    for keys in ([], MANY, [f"s/{number:0>1022}" for number in range(100)]):
        sent.clear()
        wakes.wake((target, CONTROL[MANIFEST]), [CONTROL[MANIFEST], *keys])
        named = [one_change(body).parts for body in sent]
        assert [key for parts in named for key in parts] == keys
        assert max(map(len, named)) <= 100
        assert max(map(len, sent)) <= 64 * 1024
        assert all(named) == bool(keys)


@pytest.mark.failure_mode("F284")
def test_an_expired_set_is_counted_and_logged_with_the_parts_of_its_wake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished set that is not opened has no row. A wake of it is not silent."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "sets")
    bench, telemetry, logger = finished(MANIFEST), SetTelemetry(), Mock()
    monkeypatch.setattr(telemetry, "_logger", logger)
    wake = one_change(own_message(Origin.PART, BUCKET, CONTROL[MANIFEST], parts=KEYS))
    ledger = bench.new_worker().services.ledger
    for expires in (False, True):
        if expires:
            expire_rows(bench)
        telemetry.decided(wake, ledger.claim(wake, lease_ms=MINUTE), now=bench.now)
        telemetry.flush()
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["ExpiredSets"] for line in lines if "ExpiredSets" in line] == ([[1.0]] if expires else [])
        warned = [call.kwargs["extra"] for call in logger.warning.call_args_list if call.args == ("expired set",)]
        logged = [(fields["key"], list(fields["parts"])) for fields in warned]
        assert logged == ([(CONTROL[MANIFEST], KEYS)] if expires else [])
