"""Key filters: prefixes and suffixes, in the forms of S3, EventBridge, IAM and the audit.

A filter is written as in the key, without encoding. All forms follow from it, so that the audit compares exactly the
objects that notifications report.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import quote

from aws_cdk import Token
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.limits import MAX_FILTER_BYTES, MAX_FILTERS
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import (
    FILTER_COUNT,
    FILTER_LENGTH,
    FILTER_OF_MARKERS,
    FILTERS_OVERLAP,
    KEY_ASTERISK,
    KEY_BEGINS_WITH_SLASH,
    KEY_BLANK,
    KEY_IS_URI,
    KEY_LOOKS_ENCODED,
    KEY_PLACEHOLDER,
)
from intake_ledger.protocol.settings import KeyFilter

URI = re.compile(r"((s3a?|https?)://|arn:[\w-]+:s3:::)[^/]*/?")
"""A URI or an ARN, up to the key."""
_PLACEHOLDER = re.compile(r"\[[^\]/]*\]|\{[^}/]*\}|\?|%[YmdHMS]\b|[Yy]{4}|\.\*|<[^>/]*>|^\^|\\|(?<!_\$folder)\$$")
"""Ranges, placeholders of dates, wildcards of shells and parts of regular expressions, which have no meaning in S3."""
_MARKERS = ("/", "_$folder$")
"""Ends of the keys of directory markers."""
_POLICY_ROOM = 5_000
"""Characters for keys in a role's policies, which can have 10,240."""
_ARN_LENGTH = 100
"""The longest text before each key in a policy."""


@dataclass(frozen=True)
class KeyPattern(KeyFilter):
    """A key filter of the runtime, in the forms of synthesis. Its ends may be tokens."""

    @property
    def is_known(self) -> bool:
        """True if both ends are known at synthesis. Tokens cannot be compared or encoded."""
        return not _is_token(self.prefix) and not _is_token(self.suffix)

    def __str__(self) -> str:
        parts = [f"{name} {value!r}" for name, value in self.parts()]
        return " and ".join(parts) or "every key"

    def parts(self) -> Iterator[tuple[str, str]]:
        """The prefix and the suffix that are not empty, with S3's names."""
        if self.prefix:
            yield "prefix", self.prefix
        if self.suffix:
            yield "suffix", self.suffix

    def encoded(self) -> "KeyPattern":
        """The filter for S3's notification configuration: form-encoded, as the keys in its events."""
        return KeyPattern(_form_encoded(self.prefix), _form_encoded(self.suffix))

    def iam_pattern(self) -> str:
        """The resource pattern of these keys in a policy. Wildcards in the filter are escaped."""
        prefix, suffix = (part if _is_token(part) else _iam_escaped(part) for part in (self.prefix, self.suffix))
        return f"{prefix}*{suffix}"

    def event_patterns(self) -> list[object]:
        """An EventBridge pattern for the key without encoding: a list of alternatives, empty for every key.

        In S3, prefix and suffix may overlap (`ab` matches prefix `ab` with suffix `b`). In a wildcard they cannot. The
        few keys in which they overlap are listed as they are.
        """
        if self.prefix and self.suffix:
            return [
                {"wildcard": f"{_wildcard_escaped(self.prefix)}*{_wildcard_escaped(self.suffix)}"},
                *self._overlapping_ends(),
            ]
        return [{name: value} for name, value in self.parts()]

    def _overlapping_ends(self) -> list[str]:
        if not self.is_known:
            return []
        shared = range(1, min(len(self.prefix), len(self.suffix)) + 1)
        return [self.prefix + self.suffix[n:] for n in shared if self.prefix.endswith(self.suffix[:n])]


def parse_filters(filters: Sequence[s3.NotificationKeyFilter | Mapping[str, str]] | None) -> tuple[KeyPattern, ...]:
    """Convert CDK's filters. Without filters, give a filter that matches every key."""
    ours = []
    for item in filters or ():
        given = item if isinstance(item, s3.NotificationKeyFilter) else s3.NotificationKeyFilter(**item)
        ours.append(KeyPattern(given.prefix or "", given.suffix or ""))
    return tuple(ours) or (KeyPattern(),)


def read_patterns(filters: Sequence[KeyPattern]) -> list[str]:
    """IAM's patterns for the keys that the functions may read.

    They use prefixes only, because prefix and suffix cannot overlap in a pattern of IAM. The pattern is `*` if a filter
    has no prefix, or if the patterns do not fit into a policy.
    """
    prefixes = list(dict.fromkeys(item.prefix for item in filters))
    broadest = [one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)]
    patterns = [KeyPattern(one).iam_pattern() for one in broadest]
    return patterns if sum(len(one) + _ARN_LENGTH for one in patterns) <= _POLICY_ROOM else ["*"]


def filter_problems(filters: Sequence[KeyPattern]) -> Iterator[Problem]:
    """Find filters that S3 would refuse, and filters that would match nothing."""
    if len(filters) > MAX_FILTERS:
        yield FILTER_COUNT.problem(count=len(filters))
    known = [item for item in filters if item.is_known]
    for one, other in combinations(known, 2):
        if one.overlaps(other):
            yield FILTERS_OVERLAP.problem(one=one, other=other)
    for item in known:
        length = len((item.prefix + item.suffix).encode())
        if length > MAX_FILTER_BYTES:
            yield FILTER_LENGTH.problem(length=length)
        for name, value in item.parts():
            yield from key_text_problems(f"the filter {name}", value)


def key_text_problems(name: str, value: str, *, wildcards: bool = False) -> Iterator[Problem]:
    """Find a text that can be the beginning, the end or the pattern of no key.

    Args:
        name: of the option, with its article, such as `the filter prefix`.
        value: the text. A token has no problems.
        wildcards: whether an asterisk has a meaning.

    """
    if _is_token(value):
        return
    if URI.match(value):
        yield KEY_IS_URI.problem(name=name, value=value, key=URI.sub("", value))
    if "*" in value and not wildcards:
        yield KEY_ASTERISK.problem(name=name, value=value)


def warn_about_key_text(scope: Construct, name: str, value: str) -> None:
    """Warn about a text that is probably not written as in the key.

    Args:
        scope: the construct.
        name: of the option, with its article.
        value: the text. No warning is about a token.

    """
    if _is_token(value):
        return
    if "suffix" not in name and (begin := re.match(r"(\.{0,2}/)+", value)):
        warn(scope, KEY_BEGINS_WITH_SLASH, name=name, value=value, begin=begin[0], key=value[begin.end() :])
    # A pattern is a whole key.
    blank = {"the filter suffix": value[-1:], "the pattern": value[:1] + value[-1:]}.get(name, value[:1])
    if any(map(str.isspace, blank)) or any(ord(character) < ord(" ") for character in value):
        warn(scope, KEY_BLANK, name=name, value=value)
    if re.search("%[0-9A-Fa-f]{2}", value):
        warn(scope, KEY_LOOKS_ENCODED, name=name, value=value)
    if found := _PLACEHOLDER.search(value):
        warn(scope, KEY_PLACEHOLDER, name=name, value=value, found=found[0])


def warn_about_filters(scope: Construct, filters: Sequence[KeyPattern], *, directory_markers: bool) -> None:
    """Warn about prefixes and suffixes that are probably not written as in the key.

    Args:
        scope: the pipeline.
        filters: the pipeline's.
        directory_markers: whether the pipeline processes directory markers.

    """
    for item in filters:
        if item.suffix.endswith(_MARKERS) and not directory_markers:
            warn(scope, FILTER_OF_MARKERS, filter=item)
    for item in filters:
        for name, value in item.parts():
            warn_about_key_text(scope, f"the filter {name}", value)


def _is_token(text: str) -> bool:
    # Each question about a token is a call of the CDK's process, which takes longer than this.
    return "${Token[" in text and Token.is_unresolved(text)


def _form_encoded(text: str) -> str:
    if _is_token(text):
        return text
    return quote(text, safe="/!-_.*'() ").replace(" ", "+")


def _wildcard_escaped(text: str) -> str:
    if _is_token(text):
        return text
    return text.replace("\\", "\\\\").replace("*", "\\*")


def _iam_escaped(text: str) -> str:
    return "".join(f"${{{character}}}" if character in "*?$" else character for character in text)
