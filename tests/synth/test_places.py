"""Standard changes touch few places. Each is made in a copy of the repository."""

import pytest
from scripts import places


def test_the_edits_of_all_changes_fit() -> None:
    """The tests below run their effects, which takes minutes."""
    with places.copy() as folder:
        places.make_all(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("name", places.CHANGES)
def test_a_change_touches_no_more_places_than_its_goal(name: str) -> None:
    with places.copy() as folder:
        found = places.places(name, folder)
    assert len(found.by_hand) <= places.CHANGES[name].goal, found


@pytest.mark.thorough
@pytest.mark.parametrize("name", places.CHANGES)
def test_a_change_works_with_these_places(name: str) -> None:
    """Its program uses it, and the tests of its subject pass in the copy."""
    with places.copy() as folder:
        places.places(name, folder)
        places.check(name, folder)


def test_an_edit_whose_place_has_moved_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = places.Change(goal=1, edits=(places.Edit("README.md", "text", after="no such text"),))
    monkeypatch.setitem(places.CHANGES, "moved", moved)
    with places.copy() as folder, pytest.raises(ValueError, match=r"README\.md has 0 times 'no such text'"):
        places.places("moved", folder)
