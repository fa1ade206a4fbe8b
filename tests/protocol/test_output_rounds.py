"""Check outputs with some rounds of late workers, and with all orders of requests. `make outputs` runs more of both."""

import pytest

from tests.protocol.output_orders import search_all, search_two_objects
from tests.protocol.output_rounds import play
from tests.protocol.output_writers import Action, Way

SEEDS = range(200)


def test_readers_see_the_result_of_the_highest_fence_after_each_round() -> None:
    played = [play(seed, Way.OUTPUT) for seed in SEEDS]
    assert [seed for seed, one in zip(SEEDS, played, strict=True) if one.wrong] == []
    # The rounds would hold nothing if no writer were late, died, or lost an answer.
    assert sum(one.errors["Overtaken"] for one in played) > len(SEEDS) / 2
    assert sum(one.deaths for one in played) > 10
    assert sum(one.lost_answers for one in played) > 10


@pytest.mark.parametrize("way", [Way.PLAIN, Way.ETAG])
def test_the_rounds_find_writes_that_are_not_safe(way: Way) -> None:
    """Without a condition, and with the ETag as the condition but without the fence in the content."""
    assert any(play(seed, way).wrong for seed in SEEDS)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("writers", "actions", "losses"), [(2, list(Action), 1), (3, [Action.PUT, Action.REMOVE], 0)], ids=["two", "three"]
)
def test_every_order_of_requests_is_right(writers: int, actions: list[Action], losses: int) -> None:
    """With a death before any request, and with a lost answer."""
    found = search_all(Way.OUTPUT, writers=writers, actions=actions, losses=losses)
    assert found.wrong is None
    assert found.states > 5_000


@pytest.mark.thorough
@pytest.mark.failure_mode("F288")
@pytest.mark.parametrize(("writers", "losses"), [(2, 1), (3, 0)], ids=["two", "three"])
def test_every_order_of_requests_for_two_objects_is_right(writers: int, losses: int) -> None:
    """Their outputs have the same key, such as a.jpg and a.jpeg."""
    found = search_two_objects(writers=writers, losses=losses)
    assert found.wrong is None
    assert found.states > 2_000


@pytest.mark.parametrize("way", [Way.PLAIN, Way.ETAG])
def test_the_search_finds_writes_that_are_not_safe(way: Way) -> None:
    assert search_all(way, writers=2).wrong is not None
