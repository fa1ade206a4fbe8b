"""A filter in the forms of S3, EventBridge, IAM and the audit."""

import re
from collections.abc import Iterator
from itertools import product

import pytest
from aws_cdk import Token
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.delivery.key_filters import (
    KeyPattern,
    filter_problems,
    key_text_problems,
    parse_filters,
    warn_about_key_text,
)
from tests.synth.build import new_stack, rules_in


def test_no_filter_is_one_that_matches_every_key() -> None:
    """No filter and an empty filter both match every key."""
    assert parse_filters(None) == parse_filters([]) == (KeyPattern(),)
    assert parse_filters([s3.NotificationKeyFilter()]) == (KeyPattern(),)


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (KeyPattern("in/"), KeyPattern("in/a/"), True),
        (KeyPattern("in/"), KeyPattern("out/"), False),
        (KeyPattern("in/", ".csv"), KeyPattern("in/", ".json"), False),
        (KeyPattern("in/", ".gz"), KeyPattern("in/a/", ".json.gz"), True),
        (KeyPattern(suffix=".gz"), KeyPattern("in/"), True),
        (KeyPattern(), KeyPattern("in/"), True),
    ],
)
def test_filters_overlap_by_both_ends(one: KeyPattern, other: KeyPattern, together: bool) -> None:
    """S3 refuses two filters of one event if a key can match both. Synthesis refuses them first."""
    assert one.overlaps(other) is other.overlaps(one) is together
    assert [problem.rule.id for problem in filter_problems([one, other])] == ["filters-overlap"] * together


def test_a_filter_is_no_longer_than_s3_allows() -> None:
    """S3 counts bytes of UTF-8, not characters: 1,024 in prefix and suffix."""
    assert not list(filter_problems([KeyPattern("é" * 510, ".csv")]))
    (problem,) = filter_problems([KeyPattern("é" * 511, ".csv")])
    assert "1026 bytes" in problem
    assert problem.rule.id == "filter-length"


def test_no_more_filters_than_s3_takes() -> None:
    """Each filter needs four of S3's 100 entries."""
    filters = [KeyPattern(f"{number:02}/") for number in range(26)]
    assert not list(filter_problems(filters[:25]))
    (problem,) = filter_problems(filters)
    assert "26 filters" in problem
    assert problem.rule.id == "filter-count"


def test_an_asterisk_is_refused() -> None:
    """S3 compares it with an asterisk in the key, so no event would arrive."""
    (problem,) = filter_problems([KeyPattern("in/*/")])
    assert "'in/*/' has an asterisk" in problem
    assert problem.rule.id == "key-asterisk"


@pytest.mark.failure_mode("F47")
@pytest.mark.parametrize(
    ("prefix", "spelt"),
    [
        ("in/", "in/"),
        ("in put/", "in+put/"),
        ("a+b/", "a%2Bb/"),
        ("ä/", "%C3%A4/"),
        ("a=1/", "a%3D1/"),
        ("it's!(1)/", "it's!(1)/"),
    ],
)
def test_s3_gets_filters_encoded_as_it_encodes_keys(prefix: str, spelt: str) -> None:
    """S3 compares with the encoded key, and the audit with the key itself."""
    assert KeyPattern(prefix).encoded() == KeyPattern(spelt)


WRONG = {
    "s3://bucket/in/": "key-is-uri",
    "s3a://bucket/in/": "key-is-uri",
    "arn:aws:s3:::bucket/in/": "key-is-uri",
    "in/*/": "key-asterisk",
}
DOUBTFUL = {
    "/in/": "key-begins-with-slash",
    "a%2Bb/": "key-looks-encoded",
    "in/[0-9]*/": "key-placeholder",
    "in/{date}/": "key-placeholder",
    "in/%Y/": "key-placeholder",
    "in/?/": "key-placeholder",
    "in/<tenant>/": "key-placeholder",
}
RIGHT = ("", "in/", "100%/", "a+b/", "it's!(1)/", "a=1/", "%Yield/", "a<b/")


def rules_of(text: str, *, wildcards: bool = False) -> list[str]:
    """The rules that a text of keys breaks, as an error or a warning."""
    if errors := [rule for one in key_text_problems("the prefix", text, wildcards=wildcards) for rule in rules_in(one)]:
        return errors
    scope = Construct(new_stack(), "Scope")
    warn_about_key_text(scope, "the prefix", text)
    return [rule for entry in scope.node.metadata for rule in rules_in(str(entry.data))]


@pytest.mark.failure_mode("F227")
@pytest.mark.parametrize("text", [*WRONG, *DOUBTFUL, *RIGHT])
def test_a_text_that_no_key_has_is_refused_or_noticed(text: str) -> None:
    """Filters, prefixes of outputs and patterns of sets are compared with keys. Patterns may have an asterisk."""
    expected = {**WRONG, **DOUBTFUL}.get(text)
    if text == "in/[0-9]*/":
        assert rules_of(text) == ["key-asterisk"]
    else:
        assert rules_of(text) == [expected] * (expected is not None)
    in_pattern = None if expected == "key-asterisk" else expected
    assert rules_of(text, wildcards=True) == [in_pattern] * (in_pattern is not None)


def test_a_token_is_not_judged() -> None:
    assert rules_of(f"{Token.as_string({'Ref': 'Stage'})}/*") == []


def test_iam_wildcards_in_a_prefix_stand_for_themselves() -> None:
    """A question mark in a prefix must not grant other keys."""
    assert KeyPattern("in/", ".csv").iam_pattern() == "in/*.csv"
    assert KeyPattern("who?/$").iam_pattern() == "who${?}/${$}*"


def _event_bridge_matches(patterns: list[object], key: str) -> bool:
    """Match a key as EventBridge's documentation describes it."""

    def alternatives() -> Iterator[bool]:
        for pattern in patterns:
            match pattern:
                case str():
                    yield key == pattern
                case {"prefix": str(prefix)}:
                    yield key.startswith(prefix)
                case {"suffix": str(suffix)}:
                    yield key.endswith(suffix)
                case {"wildcard": str(wildcard)}:
                    text = "".join(
                        ".*" if part == "*" else re.escape(part[-1]) for part in re.findall(r"\\.|.", wildcard)
                    )
                    yield re.fullmatch(text, key) is not None

    return not patterns or any(alternatives())


@pytest.mark.failure_mode("F47")
@pytest.mark.parametrize(
    "ends", [("", ""), ("ab", ""), ("", "ba"), ("ab", "ba"), ("aba", "aba"), ("ab", "b"), ("a*", "b\\")]
)
def test_event_bridge_passes_the_same_keys_as_s3(ends: tuple[str, str]) -> None:
    """Every short key matches both or neither, also if prefix and suffix overlap in it."""
    item = KeyPattern(*ends)
    for length in range(6):
        for letters in product("ab*\\" if "*" in ends[0] else "abc", repeat=length):
            key = "".join(letters)
            expected = key.startswith(item.prefix) and key.endswith(item.suffix)
            assert _event_bridge_matches(item.event_patterns(), key) is expected, key
