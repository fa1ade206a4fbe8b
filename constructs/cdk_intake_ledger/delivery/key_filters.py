"""Key filters: one list of prefixes and suffixes, written down for S3, for EventBridge, for IAM and for the audit.

A filter is what a key *is*, unencoded. Each reader spells it in its own way, and all of them are derived from here, so
that the audit never looks for objects that no notification was asked for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import quote

from aws_cdk import Token
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.validation.bucket_rules import FILTER_ASTERISK, FILTER_COUNT, FILTER_LENGTH, FILTERS_OVERLAP
from cdk_intake_ledger.validation.registry import Problem

MAX_LENGTH = 1024
"""S3's limit for prefix and suffix together, in bytes of UTF-8."""

MAX_FILTERS = 25
"""S3 takes 100 notification entries for one bucket, and each filter needs four of them."""


_POLICY_ROOM = 5_000
"""Characters for keys in a role's policies, which have 10,240 in all."""
_ARN_LENGTH = 100
"""What stands before each key there, at most."""


@dataclass(frozen=True)
class KeyFilter:
    """Keys that begin with `prefix` and end with `suffix`; an empty one matches every key."""

    prefix: str = ""
    suffix: str = ""

    @property
    def is_known(self) -> bool:
        """Whether both ends are known at synthesis: tokens cannot be compared or encoded."""
        return not _is_token(self.prefix) and not _is_token(self.suffix)

    def __str__(self) -> str:
        parts = [f"{name} {value!r}" for name, value in self.parts()]
        return " and ".join(parts) or "every key"

    def parts(self) -> Iterator[tuple[str, str]]:
        """The ends that were given, by S3's name for them."""
        if self.prefix:
            yield "prefix", self.prefix
        if self.suffix:
            yield "suffix", self.suffix

    def encoded(self) -> "KeyFilter":
        """As S3's notification configuration wants it: form-encoded, like the keys in its events."""
        return KeyFilter(_form_encoded(self.prefix), _form_encoded(self.suffix))

    def iam_pattern(self) -> str:
        """The resource pattern of these keys, its wildcards standing for themselves only where the filter has them."""
        prefix, suffix = (part if _is_token(part) else _iam_escaped(part) for part in (self.prefix, self.suffix))
        return f"{prefix}*{suffix}"

    def event_patterns(self) -> list[object]:
        """As an EventBridge pattern for the raw key: a list of alternatives, empty for every key.

        A wildcard asks for prefix and suffix one after the other, S3 lets them overlap (`ab` matches prefix `ab` with
        suffix `b`): the few keys that are made of both ends overlapping are listed by name.
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


def key_filters(filters: Sequence[s3.NotificationKeyFilter | Mapping[str, str]] | None) -> tuple[KeyFilter, ...]:
    """CDK's filters as ours; one that matches every key when there are none."""
    ours = []
    for item in filters or ():
        given = item if isinstance(item, s3.NotificationKeyFilter) else s3.NotificationKeyFilter(**item)
        ours.append(KeyFilter(given.prefix or "", given.suffix or ""))
    return tuple(ours) or (KeyFilter(),)


def read_patterns(filters: Sequence[KeyFilter]) -> list[str]:
    """IAM's patterns for the keys that the functions may read: by prefix, since IAM cannot let a prefix and a suffix
    overlap. Every key where a filter has no prefix, or where a policy would have no room for all of them.
    """
    prefixes = list(dict.fromkeys(item.prefix for item in filters))
    broadest = [one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)]
    patterns = [KeyFilter(one).iam_pattern() for one in broadest]
    return patterns if sum(len(one) + _ARN_LENGTH for one in patterns) <= _POLICY_ROOM else ["*"]


def overlap(one: KeyFilter, other: KeyFilter) -> bool:
    """Whether some key matches both, by S3's own rule: it refuses two such filters for one event of one bucket."""
    return (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)) and (
        one.suffix.endswith(other.suffix) or other.suffix.endswith(one.suffix)
    )


def filter_problems(filters: Sequence[KeyFilter]) -> Iterator[Problem]:
    """What S3 would refuse, or what would silently match nothing."""
    if len(filters) > MAX_FILTERS:
        yield FILTER_COUNT.problem(count=len(filters), most=MAX_FILTERS)
    known = [item for item in filters if item.is_known]
    for one, other in combinations(known, 2):
        if overlap(one, other):
            yield FILTERS_OVERLAP.problem(one=one, other=other)
    for item in known:
        length = len((item.prefix + item.suffix).encode())
        if length > MAX_LENGTH:
            yield FILTER_LENGTH.problem(length=length, most=MAX_LENGTH)
        for name, value in item.parts():
            if "*" in value:
                yield FILTER_ASTERISK.problem(name=name, value=value)


def looks_encoded(filters: Sequence[KeyFilter]) -> list[str]:
    """The ends that look percent-encoded by hand, as S3's documentation asks for; here that is done for everybody."""
    ends = [value for item in filters if item.is_known for _, value in item.parts()]
    return [value for value in ends if re.search("%[0-9A-Fa-f]{2}", value)]


def _is_token(text: str) -> bool:
    # Most filters have one end only, and to ask the CDK about the other is a call to its process.
    return text != "" and Token.is_unresolved(text)


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
