"""Messages that share a key are in one group. All others may be handled in parallel."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.consumer.group_by_key import group_by_key

batches = st.lists(st.frozensets(st.sampled_from("abcdef"), max_size=3), max_size=12)


@given(batches)
def test_no_key_is_in_two_groups_and_no_message_is_left_out(keys: list[frozenset[str]]) -> None:
    """Each message has one place, in the order of the batch."""
    made = group_by_key(keys)
    assert sorted(place for group in made for place in group) == list(range(len(keys)))
    assert all(group == sorted(group) for group in made)
    assert made == sorted(made)
    united = [frozenset().union(*(keys[place] for place in group)) for group in made]
    assert sum(map(len, united)) == len(frozenset().union(*united))


@given(batches)
def test_groups_are_as_many_as_possible(keys: list[frozenset[str]]) -> None:
    """Two messages of one group are joined by a chain of shared keys."""
    for group in group_by_key(keys):
        reached, left = {group[0]}, set(group[1:])
        while joined := {one for one in left if any(keys[one] & keys[other] for other in reached)}:
            reached |= joined
            left -= joined
        assert not left


def test_a_message_about_two_keys_joins_their_groups() -> None:
    """Three messages run one after the other, a fourth at the same time."""
    assert group_by_key([{"a"}, {"b"}, {"c"}, {"a", "b"}]) == [[0, 1, 3], [2]]


def by_definition(keys: list[frozenset[str]]) -> list[list[int]]:
    """Join two groups as long as two groups share a key."""
    made = [[place] for place in range(len(keys))]
    while True:
        united = [frozenset[str]().union(*(keys[place] for place in group)) for group in made]
        pairs = ((a, b) for a in range(len(made)) for b in range(a + 1, len(made)) if united[a] & united[b])
        if (pair := next(pairs, None)) is None:
            return sorted(made)
        made[pair[0]] = sorted(made[pair[0]] + made.pop(pair[1]))


@given(batches)
def test_groups_are_those_of_the_definition(keys: list[frozenset[str]]) -> None:
    """The fast way and the obvious way agree."""
    assert group_by_key(keys) == by_definition(keys)


class Counted(str):
    """A key that counts how often it is hashed or compared: each look into a dict is one."""

    __slots__ = ()
    operations = 0

    def __hash__(self) -> int:
        Counted.operations += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.operations += 1
        return super().__eq__(other)


@pytest.mark.parametrize(
    "keys",
    [
        [[str(n)] for n in range(10_000)],
        [[str(n), str(n + 1)] for n in range(10_000)],
        [[str(n), str(n + 1)] for n in reversed(range(10_000))],
        [["one"]] * 10_000,
        [[str(n)] for n in range(5_000)] + [[str(n) for n in range(5_000)]],
    ],
    ids=["all different", "a chain", "a chain backwards", "all the same", "one message joins all"],
)
def test_ten_thousand_messages_take_a_few_looks_per_key(keys: list[list[str]]) -> None:
    """A batch may hold 10,000 messages. The work grows linearly for any keys. It is counted, not timed."""
    counted = [[Counted(key) for key in mine] for mine in keys]
    Counted.operations = 0
    steps = 0

    def trace(*_: Any) -> Any:
        nonlocal steps
        steps += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        group_by_key(counted)
    finally:
        sys.settrace(before)
    size = sum(map(len, counted))
    assert Counted.operations <= 4 * size
    # Executed lines, which also count the steps of the search for a root.
    assert steps <= 100 * size
