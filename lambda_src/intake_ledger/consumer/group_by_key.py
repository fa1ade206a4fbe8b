"""Group the messages of a batch by key. Messages of different groups share no key and may be handled in parallel."""

from collections.abc import Collection, Sequence


def group_by_key(keys: Sequence[Collection[str]]) -> list[list[int]]:
    """Group the positions of messages, given the keys of each message. No key is in two groups.

    A message without a key is a group alone. Groups come in the order of their first messages, and positions in
    ascending order. The time is linear in the number of messages and keys (a union-find over the positions), because a
    batch may hold 10,000 messages.
    """
    parents = list(range(len(keys)))

    def root(place: int) -> int:
        while parents[place] != place:
            # Halve the path, so that the next search is shorter.
            parents[place] = place = parents[parents[place]]
        return place

    first_with: dict[str, int] = {}
    for place, own_keys in enumerate(keys):
        for key in own_keys:
            first, second = root(first_with.setdefault(key, place)), root(place)
            # The smaller position becomes the root: a group is found under its first message.
            parents[max(first, second)] = min(first, second)
    grouped: dict[int, list[int]] = {}
    for place in range(len(keys)):
        grouped.setdefault(root(place), []).append(place)
    return list(grouped.values())
