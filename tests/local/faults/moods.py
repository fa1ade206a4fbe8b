"""Moods of the downstream, and the order in which keys are mixed."""

from collections.abc import Mapping

from tests.local.faults.downstream import TAKEN, Delivery, Mood, Reaction


def dies_on_first(*prefixes: str, seconds: float = 0) -> Mood:
    """Kill the first worker of each key. The key says if it dies after its effect, or at each attempt."""
    known: set[str] = set()

    def mood(delivery: Delivery) -> Reaction:
        first = delivery.key not in known
        known.add(delivery.key)
        if delivery.key.startswith(prefixes) and (first or "/always/" in delivery.key):
            return Reaction(kill=True, taken="/after/" in delivery.key, seconds=seconds)
        return Reaction(seconds=seconds)

    return mood


def poisoned(refused: Mapping[str, str], raising: Mapping[str, str]) -> Mood:
    def mood(delivery: Delivery) -> Reaction:
        if why := refused.get(delivery.key):
            return Reaction(422, why, taken=False)
        return Reaction(500, taken=False) if delivery.key in raising else TAKEN

    return mood


def mixed(*lists: list[str]) -> list[str]:
    """All of them, each list spread evenly over the whole."""
    places = [((n + 0.5) / len(some), key) for some in lists for n, key in enumerate(some)]
    return [key for _, key in sorted(places)]
