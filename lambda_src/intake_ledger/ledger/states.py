"""The state of an object that may be claimed now, as S3 shows it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from intake_ledger.protocol import Change, ObjectGone, Ordering, Row, State, StateKind

Look = Callable[[Change, Row | None], State | None]
"""Gives the state to process. None: the removal that the change reports is not shown."""
_TRIES = 5


class StateReader(Protocol):
    """The requests to the source of states. `intake_ledger.aws.Bucket` sends them."""

    def look_for(self, change: Change, row: Row | None) -> State: ...

    def created_at(self, key: str, marker: State) -> int | None: ...

    def shows_removal(self, key: str, removal: State) -> bool: ...


def object_states(reader: StateReader, ordering: Ordering) -> Look:
    """The look of a ledger of objects."""
    return partial(_any_version if ordering is Ordering.EVERY_VERSION else present_state, reader)


def present_state(reader: StateReader, change: Change, row: Row | None) -> State:
    """The present state of the key."""
    state = reader.look_for(change, row)
    for _ in range(_TRIES):
        if row is not None or state.kind is not StateKind.MARKER:
            break
        # Only a key without a row is judged by its state's age.
        try:
            return replace(state, created_at=reader.created_at(change.key, state))
        except ObjectGone:
            state = reader.look_for(change, row)
    return state


def _any_version(reader: StateReader, change: Change, row: Row | None) -> State | None:
    """The state that a message names, if S3 shows it.

    A version needs no look here, because it is opened before the processor starts. Neither does a removal that has a
    row, because the row was written after a look.
    """
    state = change.state
    if state is None:
        return present_state(reader, change, row)
    if not state.removed or (row is not None and row.kind is state.kind) or reader.shows_removal(change.key, state):
        return state
    return None
