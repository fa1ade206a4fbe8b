"""Judges the lifecycle rules of a bucket: do they remove or archive objects whose messages may still wait?

Synthesis judges the rules of the app, and the delivery check judges the deployed rules. Both give them in the form of
S3's API. Pure functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from intake_ledger.protocol.settings import KeyFilter

TOMBSTONE_TAG = ("intake-tombstone", "1")
"""The tag that the pipeline gives to an object that stands for a removed output. No pipeline processes it."""
DAY_SECONDS = 86_400
ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes whose objects S3 does not return before they are restored."""


class EarlyEnd(NamedTuple):
    """A lifecycle rule after which a waiting message finds no readable object."""

    rule: str
    """The rule's ID. S3 gives one to each rule."""
    does: str
    """For people, such as `removes objects`."""
    seconds: int | None
    """The age at which it does. None: it has a date, and continues after it with each new object at once."""
    of_versions: bool
    """True if it is about overwritten versions."""
    tags: tuple[str, ...] = ()
    """Tags that objects must have. The pipeline does not know which objects have them."""

    @property
    def text(self) -> str:
        """The deed and its time, for people."""
        if self.seconds is None:
            return f"{self.does} from a date on, and then each new object at once"
        days = self.seconds // DAY_SECONDS
        return f"{self.does} after {days:,} day{'' if days == 1 else 's'}"


def early_ends(
    rules: Sequence[Mapping[str, Any]], *, filters: Sequence[KeyFilter], life_seconds: float, every_version: bool
) -> Iterator[EarlyEnd]:
    """Yield what enabled rules do to the pipeline's objects sooner than a message may live.

    Args:
        rules: as GetBucketLifecycleConfiguration returns them. Days that are not a number are not known.
        filters: the pipeline's. Without one, it processes each key.
        life_seconds: the longest time for which a message may wait.
        every_version: true: each version is processed, also below a delete marker or a newer version.

    """
    for rule in rules:
        limits = _limits(rule)
        tags = tuple(f"{tag['Key']}={tag['Value']}" for tag in limits["tags"])
        if rule.get("Status") != "Enabled" or not _applies(limits, filters) or "=".join(TOMBSTONE_TAG) in tags:
            continue
        for does, of_versions, seconds in _deeds(rule, every_version=every_version):
            if seconds is None or seconds < life_seconds:
                yield EarlyEnd(str(rule.get("ID", "")), does, seconds, of_versions, tags)


def _deeds(rule: Mapping[str, Any], *, every_version: bool) -> Iterator[tuple[str, bool, int | None]]:
    """Yield each deed of a rule, true if it is about overwritten versions, and the age of the object."""
    if not every_version:
        # It puts a delete marker over the version. EVERY_VERSION reads the version below it.
        yield from _timed("removes objects", False, rule.get("Expiration", {}), "Days")
    yield from _timed(
        "removes overwritten versions", True, rule.get("NoncurrentVersionExpiration", {}), "NoncurrentDays"
    )
    for transition in rule.get("Transitions", ()):
        if transition.get("StorageClass") in ARCHIVES:
            yield from _timed("archives objects", False, transition, "Days")
    for transition in rule.get("NoncurrentVersionTransitions", ()) if every_version else ():
        if transition.get("StorageClass") in ARCHIVES:
            yield from _timed("archives overwritten versions", True, transition, "NoncurrentDays")


def _timed(
    does: str, of_versions: bool, content: Mapping[str, Any], name: str
) -> Iterator[tuple[str, bool, int | None]]:
    days = content.get(name)
    if isinstance(days, int):
        yield does, of_versions, days * DAY_SECONDS
    elif content.get("Date"):
        yield does, of_versions, None


def _limits(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The prefix, the tags and the sizes of the objects to which a rule applies, from each form of a filter."""
    content = rule.get("Filter") or {}
    both = content.get("And") or {}
    tags = [*both.get("Tags", ()), *([content["Tag"]] if content.get("Tag") else ())]
    found = {"tags": tags, "prefix": rule.get("Prefix")}
    for name, key in (
        ("prefix", "Prefix"),
        ("above", "ObjectSizeGreaterThan"),
        ("below", "ObjectSizeLessThan"),
    ):
        found[name] = both.get(key, content.get(key, found.get(name)))
    return found


def _applies(limits: Mapping[str, Any], filters: Sequence[KeyFilter]) -> bool:
    """False if the rule is for no object that the pipeline processes. Objects of a pipeline may have each size."""
    above, below, prefix = limits["above"], limits["below"], limits["prefix"]
    if isinstance(above, int) and isinstance(below, int) and below - above <= 1:
        return False
    if not isinstance(prefix, str) or not filters:
        return True
    # A key may have any end, so suffixes exclude none.
    return any(keys.prefix.startswith(prefix) or prefix.startswith(keys.prefix) for keys in filters)
