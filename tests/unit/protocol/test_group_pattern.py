"""Patterns of groups."""

import pytest

from intake_ledger.protocol.group_pattern import GroupPattern, GroupPatternError


@pytest.mark.parametrize(
    ("pattern", "key", "group"),
    [
        ("in/{account}/", "in/acme/1.csv", "acme"),
        ("in/{account}/", "in/acme/2026/1.csv", "acme"),
        ("in/{account}/", "in/1.csv", None),
        ("in/{account}/", "in//1.csv", None),
        ("in/{account}/", "other/acme/1.csv", None),
        ("{tenant}/{_date}/{dataset}.", "t/2026/d.parquet", "t/d"),
        ("{tenant}/{_date}/{dataset}.", "t/2026/d", None),
        ("invoice-{account}-", "invoice-7-2026-1.csv", "7"),
        ("invoice-{account}-", "invoice-a/b-1.csv", None),
        ("a{{b}}/{x}/", "a{b}/1/2", "1"),
        ("a.c/{x}/", "abc/1/2", None),
        ("{x}--{y}/", "a-b--c-/", "a-b/c-"),
        ("{x}/", "line\nbreak/1", "line\nbreak"),
    ],
)
def test_a_group_is_the_text_of_the_placeholders(pattern: str, key: str, group: str | None) -> None:
    assert GroupPattern(pattern).group_of(key) == group


def test_no_key_takes_long() -> None:
    """Each placeholder has one end. A regular expression that tries others would need hours."""
    assert GroupPattern("".join(f"{{p{number}}}-" for number in range(12)) + "!").group_of("-a" * 512) is None
    assert GroupPattern("".join(f"{{p{number}}}-" for number in range(12)) + "!").group_of("a-" * 512) is None


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "it has no placeholder that names a group"),
        ("in/", "it has no placeholder that names a group"),
        ("in/{_}/", "it has no placeholder that names a group"),
        ("in/{account}", "no text follows the placeholder {account}"),
        ("in/{a}{b}/", "no text follows the placeholder {a}"),
        ("in/{a}/{a}/", "the placeholder {a} is there twice"),
        ("in/{}/", "the placeholder {} is not a plain name"),
        ("in/{0}/", "the placeholder {0} is not a plain name"),
        ("in/{a.b}/", "the placeholder {a.b} is not a plain name"),
        ("in/{a:3}/", "the placeholder {a} is not a plain name"),
        ("in/{a!r}/", "the placeholder {a} is not a plain name"),
        ("in/{a/", "write a brace that is a part of keys twice"),
        ("in/a}/", "write a brace that is a part of keys twice"),
    ],
)
def test_a_text_that_names_no_groups_says_why(pattern: str, why: str) -> None:
    with pytest.raises(GroupPatternError) as raised:
        GroupPattern(pattern)
    assert why in str(raised.value)


@pytest.mark.parametrize(("prefix", "fits"), [("", True), ("in/", True), ("in/a", True), ("i", True), ("out/", False)])
def test_a_prefix_fits_if_one_of_its_keys_may_have_a_group(prefix: str, fits: bool) -> None:
    assert GroupPattern("in/{account}/").fits(prefix) is fits


@pytest.mark.failure_mode("F541")
@pytest.mark.parametrize(
    ("pattern", "prefix", "fits"),
    [
        ("in/{account}-", "in/2026/", False),
        ("in/{account}-", "in/a-/", True),
        ("in/{account}/", "in//", False),
        ("{tenant}/{_date}.", "t/2026/", False),
        ("{tenant}/{_date}.", "t/2026.", True),
        ("in/{account}/new/", "in/a/old/", False),
        ("in/{account}/new/", "in/a/ne", True),
        ("in/{a}--", "in/a-", True),
    ],
)
def test_a_prefix_does_not_fit_whose_keys_have_no_group(pattern: str, prefix: str, fits: bool) -> None:
    """A placeholder has no slash, and is not empty. Synthesis would accept a pattern that excludes nothing."""
    made = GroupPattern(pattern)
    assert made.fits(prefix) is fits
    assert fits is any(made.group_of(prefix + end) for end in ("", "z", "z-", "-", "z/", "z/new/", "w/", "z--"))
