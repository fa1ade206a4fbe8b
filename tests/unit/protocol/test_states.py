"""States and their identities: what counts as the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.protocol.change import ABSENT, State, StateKind, bare_etag, identity_of, real_version


@pytest.mark.failure_mode("F36")
@pytest.mark.parametrize("spelling", [None, "", "null"])
def test_three_spellings_of_no_version_are_one(spelling: str | None) -> None:
    """Absent, empty and `null`."""
    assert real_version(spelling) is None


@pytest.mark.failure_mode("F36")
@pytest.mark.parametrize("spelling", [None, "", "null"])
def test_a_state_has_one_spelling_of_no_version_and_of_an_etag(spelling: str | None) -> None:
    """Events, HEAD and listings give the same state."""
    assert State(StateKind.OBJECT, spelling, '"abc"') == State(StateKind.OBJECT, None, "abc")
    assert State(StateKind.OBJECT, spelling, '"abc"').identity == "e#abc"
    assert State(StateKind.OBJECT, spelling, '""').etag is None


@pytest.mark.failure_mode("F36")
def test_any_other_version_is_itself() -> None:
    """`NULL` is not `null`."""
    assert [real_version(one) for one in ("NULL", "0", "v1")] == ["NULL", "0", "v1"]


@pytest.mark.parametrize(("given_", "bare"), [('"abc"', "abc"), ("abc", "abc"), ('""', None), ("", None), (None, None)])
def test_etags_lose_their_quotes(given_: str | None, bare: str | None) -> None:
    """HTTP has them, events do not."""
    assert bare_etag(given_) == bare


@pytest.mark.parametrize(
    ("kind", "version_id", "etag", "identity"),
    [
        (StateKind.OBJECT, "1", "e", "v#1"),
        (StateKind.OBJECT, None, "e", "e#e"),
        (StateKind.MARKER, "1", None, "v#1"),
        (StateKind.MARKER, None, None, "absent"),
        (StateKind.ABSENT, None, None, "absent"),
        (StateKind.ABSENT, "1", None, "absent"),
        (StateKind.DELETED, "1", None, "d#1"),
    ],
)
def test_each_kind_of_state_has_its_identity(
    kind: StateKind, version_id: str | None, etag: str | None, identity: str
) -> None:
    """F81: a permanent deletion is not its version's creation; without versions the ETag stands for the version."""
    assert identity_of(kind, version_id, etag) == identity
    assert State(kind, version_id, etag).identity == identity


@given(st.sampled_from(StateKind), st.text(min_size=1), st.text(min_size=1), st.integers(), st.integers())
def test_size_and_date_are_no_part_of_the_identity(
    kind: StateKind, version_id: str, etag: str, size: int, created_at: int
) -> None:
    """An event and a look differ in both."""
    assert State(kind, version_id, etag).identity == State(kind, version_id, etag, size, created_at).identity


def test_what_counts_as_removed() -> None:
    """The key reads as not found."""
    assert [kind for kind in StateKind if State(kind, "1", "e").removed] == [
        StateKind.MARKER,
        StateKind.ABSENT,
        StateKind.DELETED,
    ]
    assert ABSENT.removed
