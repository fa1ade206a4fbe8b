"""Which messages of a batch may be handled at the same time: those that share no key, however indirectly."""

from collections.abc import Collection, Sequence


def lanes(keys: Sequence[Collection[str]]) -> list[list[int]]:
    """The places of the messages as lanes, given the keys of each: no key is in two lanes.

    Each lane is handled one message after the other, in their order; a message without a key has one of its own. They
    come in the order of their first messages.
    """
    lane_of: dict[str, int] = {}
    made: dict[int, list[int]] = {}
    for place, mine in enumerate(keys):
        # A message with several keys joins the lanes of all of them.
        joined = {lane_of[key] for key in mine if key in lane_of}
        first = min(joined, default=place)
        made[first] = sorted([one for lane in joined for one in made.pop(lane)] + [place])
        lane_of = {key: first if lane in joined else lane for key, lane in lane_of.items()} | dict.fromkeys(mine, first)
    return sorted(made.values())
