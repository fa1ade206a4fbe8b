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
from tests.unit.support import DAY, HOUR, MINUTE, one_change

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


def expire_rows(bench: SetBench) -> None:
    """Let all rows expire. The items that say in which manifest a part is listed stay."""
    bench.now += 40 * DAY
    bench.dynamodb.items = {key: item for key, item in bench.dynamodb.items.items() if "set_key" in item}


def set_key(form: FormSettings) -> str:
    return CONTROL.get(form, "s/1/")


def runs(bench: SetBench) -> list[list[str]]:
    return [[key for key, _ in run.parts] for run in bench.runs]


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
@pytest.mark.parametrize("form", [MARKER, QUIET], ids=["marker", "quiet"])
def test_a_part_that_is_removed_alone_makes_a_version_after_the_quiet_time(form: FormSettings) -> None:
    bench = finished(form)
    bench.delete(KEYS[1])
    began = bench.now
    bench.run(0.1)
    assert runs(bench) == [KEYS]
    assert bench.run_audit().oldest_waiting_ms is None, "the folder misses nothing"
    bench.run()
    assert runs(bench) == [KEYS, [KEYS[0], *KEYS[2:]]]
    assert 10 * MINUTE <= bench.runs[1].at - began < 12 * MINUTE


@FORMS
@pytest.mark.failure_mode("F274")
def test_a_part_that_comes_back_or_is_replaced_runs_the_set_at_once(form: FormSettings) -> None:
    bench = finished(form)
    bench.delete(KEYS[1])
    bench.run(0.05)
    began = bench.now
    bench.put(KEYS[1], "corrected")
    bench.run()
    assert runs(bench) == [KEYS, KEYS]
    assert bench.runs[1].at - began < (11 * MINUTE if form is QUIET else MINUTE)


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


@pytest.mark.failure_mode("F274")
def test_an_empty_export_is_processed_and_an_emptied_one_only_if_a_person_asks() -> None:
    bench = SetBench(MARKER)
    bench.put(CONTROL[MARKER], "")
    bench.run()
    assert runs(bench) == [[]]
    bench.put(KEYS[0])
    bench.run()
    bench.delete(KEYS[0])
    bench.run()
    assert runs(bench) == [[], [KEYS[0]]]
    request = own_message(Origin.REPROCESS, BUCKET, CONTROL[MARKER], reprocess_id=ulid(bench.now, 0))
    bench.send(request)
    bench.run()
    assert runs(bench) == [[], [KEYS[0]], []]
    assert bench.runs[2].version == bench.runs[0].version != bench.runs[1].version
    bench.put(CONTROL[MARKER], "")
    bench.run()
    assert runs(bench) == [[], [KEYS[0]], [], []], "a new export that is empty"


@pytest.mark.failure_mode("F274")
def test_an_old_finished_set_is_never_rejected_by_a_removal_or_a_late_wake() -> None:
    bench = finished(MANIFEST)
    bench.now += 20 * DAY
    bench.delete(KEYS[0])
    bench.run()
    bench.send(own_message(Origin.PART, BUCKET, CONTROL[MANIFEST]))
    bench.run()
    row = bench.known(CONTROL[MANIFEST])
    assert (row.status, bench.dead_letters) == (Status.PROCESSED, [])
    assert bench.outcomes["Waiting"] == 0
    bench.put(KEYS[1], "corrected")
    bench.run(1)
    assert "1 of 4 parts are missing" in str(bench.known(CONTROL[MANIFEST]).reason), "it is a change, and is shown"


@FORMS
@pytest.mark.failure_mode("F275")
def test_lifecycle_expirations_are_no_change_of_a_finished_set(form: FormSettings) -> None:
    """Not with their own wakes, and not when the audit or another wake looks later."""
    bench = finished(form)
    for key in KEYS[:3]:
        bench.now += DAY
        bench.expire(key)
        bench.run()
        bench.send(own_message(Origin.PART, BUCKET, set_key(form)))
        bench.run()
        bench.now += 2 * HOUR
        assert bench.run_audit().woken == []
        bench.run()
    assert runs(bench) == [KEYS]
    assert (bench.dead_letters, bench.known(set_key(form)).status) == ([], Status.PROCESSED)


@pytest.mark.failure_mode("F275")
@pytest.mark.parametrize("form", [MARKER, QUIET], ids=["marker", "quiet"])
def test_an_expiration_before_the_set_was_finished_says_nothing_of_later_removals(form: FormSettings) -> None:
    bench = SetBench(form)
    bench.put(KEYS[0])
    bench.run()
    bench.expire(KEYS[0])
    bench.run()
    for key in KEYS[1:]:
        bench.put(key)
    if form in CONTROL:
        bench.put(CONTROL[form])
    bench.run()
    bench.delete(KEYS[1])
    bench.run()
    assert runs(bench)[-1] == KEYS[2:]


@pytest.mark.failure_mode("F276")
def test_a_quiet_folder_of_replicas_is_processed_once() -> None:
    """Their Last-Modified is old, so only their commits tell that they arrive now."""
    bench = SetBench(QUIET)
    for key in KEYS:
        bench.put_replica(key)
        bench.run(0.02)
    last = bench.now
    bench.run()
    assert runs(bench) == [KEYS]
    assert 8 * MINUTE <= bench.runs[0].at - last < 12 * MINUTE


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


@pytest.mark.failure_mode("F278")
def test_a_part_that_is_replaced_after_the_rows_expired_is_shown() -> None:
    """The set waits with its reason for the other parts. A late wake alone changes nothing."""
    bench = finished(MANIFEST)
    expire_rows(bench)
    bench.send(own_message(Origin.PART, BUCKET, CONTROL[MANIFEST]))
    bench.run()
    assert bench.row(CONTROL[MANIFEST]) is None
    bench.put(KEYS[0], "corrected")
    bench.run(1)
    row = bench.known(CONTROL[MANIFEST])
    assert row.waiting_since is not None
    assert "3 of 4 parts are missing" in str(row.reason)
    for key in KEYS[1:]:
        bench.put(key)
    bench.run()
    assert runs(bench) == [KEYS, KEYS]


@pytest.mark.failure_mode("F278")
def test_a_replicated_manifest_is_as_young_as_its_first_commit() -> None:
    bench = SetBench(MANIFEST)
    bench.put_replica(CONTROL[MANIFEST], json.dumps(["0.csv", "1.csv"]), days=40)
    bench.run(1)
    assert "2 of 2 parts are missing" in str(bench.known(CONTROL[MANIFEST]).reason)
    for key in KEYS[:2]:
        bench.put_replica(key, days=40)
    bench.run()
    assert runs(bench) == [KEYS[:2]]


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


@FORMS
@pytest.mark.failure_mode("F282")
@pytest.mark.parametrize("what", ["a late wake", "a removed part", "a part that a person processes again"])
def test_nothing_but_a_new_version_of_a_part_opens_an_expired_set(form: FormSettings, what: str) -> None:
    bench = finished(form)
    expire_rows(bench)
    if what == "a late wake":
        bench.send(own_message(Origin.PART, BUCKET, set_key(form), parts=[*KEYS, "s/2/other.csv"]))
    elif what == "a removed part":
        bench.delete(KEYS[1])
    else:
        request = own_message(Origin.REPROCESS, BUCKET, KEYS[1], reprocess_id=ulid(bench.now, 0))
        bench.parts.send(request)
    before = bench.verdicts["STALE"]
    bench.run()
    assert bench.verdicts["STALE"] == before + 1
    assert (bench.row(set_key(form)), bench.dead_letters, runs(bench)) == (None, [], [KEYS])


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
