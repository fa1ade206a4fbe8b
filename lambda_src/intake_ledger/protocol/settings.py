"""The settings of the consumer. The construct sets them as environment variables."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from intake_ledger.protocol.directory_markers import is_skipped_marker
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.object_state import State
from intake_ledger.protocol.row_items import Ordering

PIPELINE_TAG = "intake-ledger:pipeline"
"""A tag with the pipeline's name on each bucket, table and queue that a pipeline makes. `intake-ledger adopt` needs it.
"""


VERSION_BYTES = 12
"""The length of a processor's version in a row. Twelve digits of an asset's hash do not repeat within a pipeline."""


class Reasons(StrEnum):
    """The details about a failed attempt in rows, dead-letter messages and logs."""

    TYPES = "TYPES"
    """Exception types and code positions: `KeyError at invoices:42, from ValueError at amounts:7`."""
    FULL = "FULL"
    """The messages of the exceptions too. They may quote the content of objects."""


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Keys that begin with `prefix` and end with `suffix`. An empty filter matches every key."""

    prefix: str = ""
    suffix: str = ""

    def matches(self, key: str) -> bool:
        return key.startswith(self.prefix) and key.endswith(self.suffix)

    def overlaps(self, other: "KeyFilter") -> bool:
        """Return True if a key can match both, by S3's rule, which refuses two such filters for one event."""
        return (self.prefix.startswith(other.prefix) or other.prefix.startswith(self.prefix)) and (
            self.suffix.endswith(other.suffix) or other.suffix.endswith(self.suffix)
        )

    def covers(self, other: "KeyFilter") -> bool:
        """Return True if each key that matches `other` matches this filter."""
        return other.prefix.startswith(self.prefix) and other.suffix.endswith(self.suffix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of both the consumer and the audit. Durations are in seconds."""

    pipeline: str
    bucket: str
    bucket_owner: str | None
    table: str
    queue_url: str
    ordering: Ordering
    deletes: bool
    retention_seconds: int
    clock_skew_seconds: int
    filters: tuple[KeyFilter, ...] = ()
    """The pipeline handles the keys that pass one of these filters. Without filters, it handles all keys."""
    keeps_rows: bool = False
    """True if the row of an object stays as long as the object. Then only committed removals expire."""
    skips_existing: bool = False
    """True if the pipeline skips objects without a row that are older than the pipeline."""
    directory_markers: bool = False
    """True if the pipeline processes directory markers. Otherwise it skips those without a row."""

    def wants(self, key: str) -> bool:
        """True if the key passes the pipeline's filters."""
        return not self.filters or any(key_filter.matches(key) for key_filter in self.filters)

    def skips(self, key: str, state: State) -> bool:
        """True if the pipeline skips this state as a directory marker, unless it has a row."""
        every_version = self.ordering is Ordering.EVERY_VERSION
        return not self.directory_markers and is_skipped_marker(key, state, every_version=every_version)


HOLD_SHARE = 0.75
"""The longest wait of a message for a failing downstream, as a share of the retention of its source. The rest is for
its last attempts, so that the message reaches the dead-letter queue with its reason before the source deletes it."""
LAST_TRY_SHARE = 0.95
"""The last attempt on a message begins within this share of the retention of its source, if no audit would find the
message again. The rest is for this attempt, and for those of other messages that end at the same time."""


def last_try_seconds(max_hold_seconds: float) -> float:
    """The age at which the last attempt on a message begins at the latest, for the `max_hold` of its source."""
    return max_hold_seconds / HOLD_SHARE * LAST_TRY_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Settings):
    dlq_url: str
    processor: str
    processing_timeout_seconds: int
    max_attempts: int
    min_backoff_seconds: int
    max_backoff_seconds: int
    max_event_age_seconds: int
    processor_function: str | None = None
    """The Lambda function that is the processor. None: `processor` is."""
    threads: int = 1
    """The number of records of a batch that are processed at the same time."""
    max_receives: int = 1_000
    """The queue's maxReceiveCount."""
    max_wait_seconds: int = 3 * 86_400
    """The longest time for which a change waits after `NotYet`."""
    max_hold_seconds: int = 3 * 86_400
    """The longest time for which a message waits for a failing downstream: `HOLD_SHARE` of its source's retention.
    After it, the next failure rejects a change of an object, and failures of a keyed message spend attempts."""
    commit_together: bool = False
    """True if changes that were claimed together are committed together."""
    reasons: Reasons = Reasons.TYPES
    """The details about a failed attempt in rows, dead-letter messages and logs."""
    processor_version: str | None = None
    """The version of the processor's code, shortened as `short_version` does. None: it is not known."""


def consumer_settings(environment: Mapping[str, str]) -> ConsumerSettings:
    """Read the consumer's settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    read = SettingsReader(environment)
    function = read.text("INTAKE_PROCESSOR_FUNCTION", "") or None
    elsewhere = function or environment.get("INTAKE_STATE_MACHINE")
    return ConsumerSettings(
        **common_settings(read),
        dlq_url=read.text("INTAKE_DLQ_URL"),
        processor=read.text("INTAKE_PROCESSOR", "" if elsewhere else None),
        processor_function=function,
        processing_timeout_seconds=read.whole("INTAKE_PROCESSING_TIMEOUT_SECONDS", 1),
        # A worker that dies before it starts may waste one attempt.
        max_attempts=read.whole("INTAKE_MAX_ATTEMPTS", 2),
        min_backoff_seconds=read.whole("INTAKE_MIN_BACKOFF_SECONDS", 0),
        max_backoff_seconds=read.whole("INTAKE_MAX_BACKOFF_SECONDS", 0),
        max_event_age_seconds=read.whole("INTAKE_MAX_EVENT_AGE_SECONDS", 0),
        max_receives=read.whole("INTAKE_MAX_RECEIVES", 2, "1000"),
        max_wait_seconds=read.whole("INTAKE_MAX_WAIT_SECONDS", 1, "259200"),
        max_hold_seconds=read.whole("INTAKE_MAX_HOLD_SECONDS", 1, "259200"),
        threads=read.whole("INTAKE_CONCURRENCY", 1, "1"),
        commit_together=read.choice("INTAKE_COMMIT_TOGETHER", ("true", "false"), "false") == "true",
        reasons=Reasons(read.choice("INTAKE_REASONS", tuple(Reasons), Reasons.TYPES)),
        processor_version=short_version(read.text("INTAKE_PROCESSOR_VERSION", "")),
    )


def short_version(text: str) -> str | None:
    """The version as rows have it: the first 12 bytes. A row then still fits into one write unit. None: it is empty."""
    return text.encode()[:VERSION_BYTES].decode("utf-8", "ignore") or None


def common_settings(read: "SettingsReader") -> dict[str, Any]:
    """Read the fields of `Settings`. Raises SettingsError."""
    return {
        "pipeline": read.text("INTAKE_PIPELINE_NAME"),
        "bucket": read.text("INTAKE_BUCKET_NAME"),
        "bucket_owner": read.text("INTAKE_BUCKET_OWNER", "") or None,
        "table": read.text("INTAKE_TABLE_NAME"),
        "queue_url": read.text("INTAKE_QUEUE_URL"),
        "ordering": Ordering(read.choice("INTAKE_ORDERING", tuple(Ordering))),
        "deletes": read.choice("INTAKE_DELETES", ("true", "false")) == "true",
        "retention_seconds": read.whole("INTAKE_RETENTION_SECONDS", 1),
        "clock_skew_seconds": read.whole("INTAKE_CLOCK_SKEW_SECONDS", 0),
        "filters": read.filters("INTAKE_KEY_FILTERS"),
        "keeps_rows": read.choice("INTAKE_KEEP_ROWS", ("true", "false"), "false") == "true",
        "skips_existing": read.choice("INTAKE_SKIP_EXISTING", ("true", "false"), "false") == "true",
        "directory_markers": read.choice("INTAKE_DIRECTORY_MARKERS", ("true", "false"), "false") == "true",
    }


class SettingsReader:
    """Reads variables by name. A missing or malformed one raises SettingsError."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str | None = None) -> str:
        value = self._environment.get(name, default)
        if value is None or (value == "" and default is None):
            raise SettingsError(
                f"the environment variable {name} is not set: deploy the construct's own function, or set it"
            )
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise SettingsError(f"{name} is {value!r}, expected one of {', '.join(allowed)}")
        return value

    def whole(self, name: str, least: int, default: str | None = None) -> int:
        value = self.text(name, default)
        if not value.isascii() or not value.isdecimal() or int(value) < least:
            raise SettingsError(f"{name} is {value!r}, expected a whole number of at least {least}")
        return int(value)

    def filters(self, name: str) -> tuple[KeyFilter, ...]:
        value = self.text(name, "[]")
        try:
            return tuple(_key_filter(content) for content in _list(json.loads(value)))
        except (AttributeError, TypeError, ValueError) as problem:
            raise SettingsError(
                f"{name} is {value!r}, expected a JSON list of prefixes and suffixes: {problem}"
            ) from None


def _list(content: object) -> list[dict[str, object]]:
    if not isinstance(content, list):
        raise TypeError(f"{content!r} is not a list")
    return content


def _key_filter(content: dict[str, object]) -> KeyFilter:
    texts = {name: text for name, text in content.items() if isinstance(text, str)}
    if texts != content:
        raise TypeError(f"{content} has a value that is not a text")
    return KeyFilter(**texts)
