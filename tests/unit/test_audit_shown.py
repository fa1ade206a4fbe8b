"""The filter of what the listing has shown."""

import tracemalloc

from intake_ledger.audit.shown import PARTS, Shown
from intake_ledger.rows import RowKey


def keys(first: int, last: int) -> list[RowKey]:
    return [RowKey(f"uploads/in/{number}", "p@latest") for number in range(first, last)]


def test_what_was_added_is_in_it() -> None:
    """Always: otherwise each would cost a HEAD."""
    shown = Shown(b"salt")
    for key in keys(0, 5_000):
        shown.add(key)
    assert all(shown.has(key) for key in keys(0, 5_000))


def test_what_was_not_added_is_hardly_ever() -> None:
    """It would be a lost removal that stays unnoticed."""
    shown = Shown(b"salt")
    for key in keys(0, 5_000):
        shown.add(key)
    assert not any(shown.has(key) for key in keys(5_000, 10_000))


def test_a_row_of_another_sort_key_is_another() -> None:
    """In EVERY_VERSION each version has its own."""
    shown = Shown(b"salt")
    shown.add(RowKey("uploads/a", "p@v#1"))
    assert not shown.has(RowKey("uploads/a", "p@v#2"))


def test_what_is_mistaken_differs_from_salt_to_salt() -> None:
    """So that a removal that stays unnoticed in one run is noticed in the next."""
    one, other = Shown(b"one"), Shown(b"other")
    (key,) = keys(0, 1)
    one.add(key)
    assert one.has(key)
    assert bytes(one._bits) != bytes(other._bits)
    other.add(key)
    assert bytes(one._bits) != bytes(other._bits)


def test_parts_make_the_same_filter() -> None:
    """As the next invocation puts it together; empty parts are left out."""
    shown, again = Shown(b"salt"), Shown(b"salt")
    for key in keys(0, 20):
        shown.add(key)
    parts = dict(shown.parts())
    # Six indices each, some of them in one part.
    assert 0 < len(parts) < min(20 * 6, PARTS)
    for number, part in parts.items():
        again.restore(number, part)
    assert all(again.has(key) for key in keys(0, 20))
    assert not any(again.has(key) for key in keys(20, 200))


def test_f42_memory_does_not_grow_with_the_bucket() -> None:
    """F42: 100,000 keys take no more than none."""
    shown = Shown(b"salt")
    tracemalloc.start()
    for number in range(100_000):
        shown.add(RowKey(f"uploads/{number}", "p@latest"))
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 100_000
