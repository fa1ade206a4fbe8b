"""The cells of kinds, runners and hosts, and the reasons why a test or a cell does not apply.

`every_cell` runs a test in each cell. A test that does not apply meets `DoesNotApply`. Then this table must have its
reason. A reason whose test applies after all is an error too.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import pytest

from tests.kinds.cells import FORMS, HOSTS, LATER, RUNNERS, Cell, DoesNotApply
from tests.settings import THOROUGH


class Place(NamedTuple):
    """A cell."""

    kind: str
    runner: str
    host: str


class Absence(NamedTuple):
    """Cells in which a test does not apply, or that do not exist. `*` stands for each name."""

    test: str
    """The name of the test without `test_`. Empty: the cell itself does not exist."""
    kind: str
    runner: str
    host: str
    reason: str

    def covers(self, place: Place) -> bool:
        """True if it is about this cell."""
        return all(wanted in ("*", name) for wanted, name in zip(self[1:4], place, strict=True))


_NO_TRUTH = "The message itself is the truth. When its source has lost it, nothing else knows of it."
_SEND_AGAIN = "The ledger does not keep messages. Send the message again, with another identity."
_NOT_ELSEWHERE = "Nothing is started elsewhere."
_SHORT = "Lambda ends an invocation after 15 minutes at most. The lease is longer."
_OLDER = "an_older_event_after_a_newer_one_undoes_nothing"
_REPROCESS = "a_reprocess_runs_finished_work_again"
_REPROCESS_LOST = "a_lost_request_to_process_again_is_sent_again"
_REPROCESS_KILLED = "a_worker_may_die_at_each_request_of_a_reprocess"
_REPROCESS_STOPPED = "a_stopped_reprocess_is_withdrawn"
_RELEASED = "a_claim_of_a_dead_worker_is_released"
_REJECTS = "rejected_rows_are_those_of_the_committed_state"
_CALL = "a_poison_of_a_call_spends_no_attempt_of_its_neighbours"
_ORDERED = "A thing starts after the earlier ones of its group or key, and a call has several at once."
_ONE_ROW = "A message is one row: its processor raises `Unprocessable`."
_READS_ITSELF = "The other function, or the tasks, read the object by themselves."
_WAIT = "a_wait_ends_when_it_is_committed"
_NO_LISTING = "No listing has the messages of a key."
_EVENT = "an_execution_whose_event_is_lost_is_seen_by_its_message"
_KEY_IS_GROUP = "The messages of a key exclude each other. Use the group as the key."
_GROUPS = "a_group_has_one_live_attempt"
_TAG = "a_committed_version_gets_its_tag_whoever_dies"
_READY = "a_version_waits_for_its_tag_whoever_dies"
_COPIES = "copies_in_place_are_known_whoever_dies"
_NOT_SEEN = "The construct refuses it: the end of an execution is written by a worker that has not seen its content."
_EACH_VERSION = "The construct refuses it: it promises a call for each version."
_NOT_GIVEN_UP = "The construct refuses it: another worker may start an execution whose claim this one gives up."
_REMOVALS = ("a_removal_is_told_once_whoever_dies", "an_undelete_calls_nobody_whoever_dies")
_NOT_REMOVED = "Nothing removes a message."
_UNTOLD = "No processor of sets is told of removals."
_OWN_CHANGES = "Each marker, and each removal of a version, is a change of its own."
_LEFT_OUT = "a_file_that_is_left_out_stays_so_whoever_dies"
_NO_FILE = "A message has no key of a file. Let its source filter."
_NO_VERSION = "A message has no version in S3."
_PARTS_HAVE_TAGS = "The pipeline of the parts has the tags and the content of each. A set has no version of its own."
_GROUP_DEATHS = "a_worker_may_die_at_each_request_while_its_group_waits"
WORKERS_START = ("a_thing_is_processed_and_committed_once", "long_work_is_not_repeated", "a_refused_start_is_counted")
"""The tests of durable functions on workers. The others have them in Lambda: a worker only receives and sends
heartbeats, which the state machine's cells test."""
REFUSED = (
    *(Absence("", "FIFO messages", one, "*", "A message group would wait for each execution.") for one in LATER),
    *(Absence("", "stream records", one, "*", "A shard would wait for each execution.") for one in LATER),
    Absence("", "stream records", "inline", "worker", "A worker receives from SQS only."),
    Absence("", "stream records", "remote", "worker", "A worker receives from SQS only."),
)
"""Cells that synthesis and the consumer refuse."""
ABSENT = (
    Absence("a_lost_event_is_found", "messages", "*", "*", _NO_TRUTH),
    Absence("a_lost_event_is_found", "FIFO messages", "*", "*", _NO_TRUTH),
    Absence("a_lost_event_is_found", "stream records", "*", "*", _NO_TRUTH),
    Absence(_OLDER, "FIFO messages", "*", "*", "The queue keeps the order of a message group."),
    Absence(_OLDER, "stream records", "*", "*", "A shard keeps the order of its records."),
    Absence("long_work_is_not_repeated", "*", "inline", "lambda", _SHORT),
    Absence("long_work_is_not_repeated", "*", "remote", "lambda", _SHORT),
    Absence(_REPROCESS, "messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS, "FIFO messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS, "stream records", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_LOST, "messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_LOST, "FIFO messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_LOST, "stream records", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_KILLED, "messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_KILLED, "FIFO messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_KILLED, "stream records", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_STOPPED, "messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_STOPPED, "FIFO messages", "*", "*", _SEND_AGAIN),
    Absence(_REPROCESS_STOPPED, "stream records", "*", "*", _SEND_AGAIN),
    Absence(_REJECTS, "messages", "*", "*", _ONE_ROW),
    Absence(_REJECTS, "FIFO messages", "*", "*", _ONE_ROW),
    Absence(_REJECTS, "stream records", "*", "*", _ONE_ROW),
    *(
        Absence(_REJECTS, kind, runner, "*", _READS_ITSELF)
        for kind in ("objects", "every version", "sets")
        for runner in ("remote", *LATER)
    ),
    Absence(_EVENT, "*", "inline", "*", _NOT_ELSEWHERE),
    Absence(_EVENT, "*", "remote", "*", _NOT_ELSEWHERE),
    *(
        Absence(_RELEASED, "*", one, "*", "The fence of the claim is the name of its execution: stop the execution.")
        for one in LATER
    ),
    Absence(_WAIT, "messages", "*", "*", _NO_LISTING),
    Absence(_WAIT, "FIFO messages", "*", "*", _NO_LISTING),
    Absence(_WAIT, "stream records", "*", "*", _NO_LISTING),
    *(
        Absence(test, kind, "*", "*", _KEY_IS_GROUP)
        for test in (_GROUPS, _GROUP_DEATHS)
        for kind in ("messages", "FIFO messages", "stream records")
    ),
    *(
        Absence(test, kind, "*", "*", _NO_VERSION)
        for test in (_TAG, _READY, _COPIES)
        for kind in ("messages", "FIFO messages", "stream records")
    ),
    *(Absence(test, "sets", "*", "*", _PARTS_HAVE_TAGS) for test in (_TAG, _READY, _COPIES)),
    Absence(_COPIES, "every version", "*", "*", _EACH_VERSION),
    *(Absence(_COPIES, "objects", one, "*", _NOT_SEEN) for one in LATER),
    *(Absence(_LEFT_OUT, kind, "*", "*", _NO_FILE) for kind in ("messages", "FIFO messages", "stream records")),
    *(Absence(_READY, kind, one, "*", _NOT_GIVEN_UP) for kind in ("objects", "every version") for one in LATER),
    *(
        Absence(test, kind, "*", "*", why)
        for test in _REMOVALS
        for kind, why in (
            ("every version", _OWN_CHANGES),
            ("sets", _UNTOLD),
            *((kind, _NOT_REMOVED) for kind in ("messages", "FIFO messages", "stream records")),
        )
    ),
    *(
        Absence("a_late_worker_is_counted", "*", one, "*", "The execution owns the work. A worker only starts it.")
        for one in LATER
    ),
    Absence("a_refused_start_is_counted", "*", "inline", "*", _NOT_ELSEWHERE),
    Absence(
        "a_refused_start_is_counted", "*", "remote", "*", "A call of a function that is refused is a failed attempt."
    ),
    *(
        Absence(_CALL, kind, runner, "*", "The request has one thing.")
        for kind in ("objects", "every version", "messages")
        for runner in ("remote", *LATER)
    ),
    Absence(_CALL, "sets", "*", "*", "A set has many files already, and each set has one call."),
    Absence(_CALL, "FIFO messages", "*", "*", _ORDERED),
    Absence(_CALL, "stream records", "*", "*", _ORDERED),
)
"""Tests that do not apply in some cells."""


def _places() -> list[Place]:
    every = (Place(*names) for names in product(FORMS, RUNNERS, HOSTS))
    return [place for place in every if not any(one.covers(place) for one in REFUSED)]


CELLS = _places()
_CHOICES = [[place for place in CELLS if place.kind == kind and place.runner != "durable"] for kind in FORMS]
"""The cells of each kind. `make test` takes a test in one of them, the next test in the next one. `make thorough` takes
all cells. A durable function differs from a state machine in its requests only."""
Make = Callable[..., Cell]
"""Makes the cell. Its arguments are the fields of `Cell` from `lost_events` on."""
TESTS: dict[str, Callable[[Make], object]] = {}
"""The tests by name without `test_`, in their order."""


def absence(test: str, place: Place) -> Absence | None:
    """The line of the table for a test in a cell, if it has one."""
    found = [one for one in ABSENT if one.test == test and one.covers(place)]
    assert len(found) <= 1, f"{test} has two reasons in {' '.join(place)}"
    return found[0] if found else None


def every_cell(test: Callable[[Make], object]) -> Callable[..., None]:
    """Run the test in each cell."""
    name = test.__name__.removeprefix("test_")
    TESTS[name] = test

    def checked(kind: str, runner: str, host: str) -> None:
        reason = absence(name, Place(kind, runner, host))
        try:
            for crowded in _ways(Place(kind, runner, host)):
                test(lambda crowded=crowded, **options: Cell(kind, runner, host, crowded=crowded, **options))
        except DoesNotApply:
            assert reason is not None, "it does not apply: write the reason into ABSENT"
        else:
            assert reason is None, f"it applies. Delete the reason from ABSENT: {reason}"

    checked.__name__, checked.__doc__ = test.__name__, test.__doc__
    checked.__module__ = test.__module__
    quick = {choice[len(TESTS) % len(choice)] for choice in _CHOICES}
    quick |= {place for place in CELLS if name in WORKERS_START and place.runner == "durable"}
    places = [place for place in CELLS if place[1:] != ("durable", "worker") or name in WORKERS_START]
    cells = [
        pytest.param(*place, id=" ".join(place), marks=() if place in quick else pytest.mark.thorough)
        for place in places
    ]
    return pytest.mark.wide(pytest.mark.parametrize(("kind", "runner", "host"), cells)(checked))


def _ways(place: Place) -> tuple[bool, ...]:
    """Each wait is by visibility, and then as a delayed copy. Records of a stream stay in their shard.

    `make test` plays copies with a processor in Lambda, and `make thorough` with all.
    """
    copies = place.kind != "stream records" and place.runner != "durable"
    copies = copies and (THOROUGH or place[1:] == ("inline", "lambda"))
    return (False, True) if copies else (False,)
