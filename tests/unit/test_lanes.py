"""Lanes: what shares a key waits for its turn, what does not may overlap."""

from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.lanes import lanes

batches = st.lists(st.frozensets(st.sampled_from("abcdef"), max_size=3), max_size=12)


@given(batches)
def test_no_key_is_in_two_lanes_and_nobody_is_left_out(keys: list[frozenset[str]]) -> None:
    """Each message has one place, in the order of the batch."""
    made = lanes(keys)
    assert sorted(place for lane in made for place in lane) == list(range(len(keys)))
    assert all(lane == sorted(lane) for lane in made)
    assert made == sorted(made)
    united = [frozenset().union(*(keys[place] for place in lane)) for lane in made]
    assert sum(map(len, united)) == len(frozenset().union(*united))


@given(batches)
def test_lanes_are_as_many_as_possible(keys: list[frozenset[str]]) -> None:
    """Two messages of one lane are joined by a chain of shared keys."""
    for lane in lanes(keys):
        reached, left = {lane[0]}, set(lane[1:])
        while joined := {one for one in left if any(keys[one] & keys[other] for other in reached)}:
            reached |= joined
            left -= joined
        assert not left


def test_a_message_about_two_keys_joins_their_lanes() -> None:
    """The three after each other, a fourth beside them."""
    assert lanes([{"a"}, {"b"}, {"c"}, {"a", "b"}]) == [[0, 1, 3], [2]]
