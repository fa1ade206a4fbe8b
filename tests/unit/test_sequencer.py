"""Sequencers: normalised for people and telemetry, and never decisive."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.sequencer import is_older, normalise

HEXADECIMAL = st.text("0123456789abcdefABCDEF", min_size=1, max_size=40)


@given(HEXADECIMAL, st.integers(0, 20))
def test_case_and_padding_on_the_right_make_no_difference(text: str, zeros: int) -> None:
    """AWS's own samples differ in both."""
    assert normalise(text.lower()) == normalise(text.upper()) == normalise(text + "0" * zeros)


@given(HEXADECIMAL, HEXADECIMAL)
def test_text_order_is_the_order_after_padding(one: str, other: str) -> None:
    """As AWS documents the comparison: pad the shorter one with zeros on the right."""
    length = max(len(one), len(other))
    padded = one.ljust(length, "0").upper() < other.ljust(length, "0").upper()
    assert is_older(normalise(one), normalise(other)) is padded


def test_f56_samples_of_different_case_and_length() -> None:
    """F56: AWS's own: `0055AED6DCD90281E5` precedes `617f08299329d189` whatever their lengths."""
    samples = ["617f08299329d189", "0055AED6DCD90281E5", "006408CAD69598B05E", "0067B506FB4E9E2775"]
    for order in permutations(samples):
        assert sorted(order, key=lambda one: str(normalise(one))) == sorted(samples, key=str.upper)


@given(st.none() | st.integers() | st.text() | st.lists(st.text()))
def test_whatever_is_no_hexadecimal_text_is_none(value: object) -> None:
    """Telemetry has to do without it, and nothing else needs it."""
    result = normalise(value)
    assert result is None or set(result) <= set("0123456789ABCDEF")


def test_boundaries() -> None:
    """Zero is a sequencer, empty is none, and what is longer than any can be is refused."""
    assert normalise("0") == normalise("000") == "0"
    assert normalise("") is None
    assert normalise("A" * 128) == "A" * 128
    assert normalise("A" * 129) is None
    assert normalise("0x1F") is None
    assert normalise("\uff11\uff12") is None


def test_unknown_is_not_older() -> None:
    """F57: lifecycle, restore, tagging and the audit have no sequencer."""
    assert is_older(None, "A") is None
    assert is_older("A", None) is None
    assert is_older("A", "A") is False
