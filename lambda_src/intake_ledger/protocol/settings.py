"""The settings of the consumer, and how a dataclass of settings is written to environment variables and read from them.

A setting is one field. Its `Variable` is the only place that spells the variable's name, and its default is the only
default: constructs write by the field's name (`environment_of`), the functions and the command read the same field.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from intake_ledger.protocol.change import Skipped, State, is_skipped_marker
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering

if TYPE_CHECKING:
    from intake_ledger.protocol.awaited_tag import AwaitedTag
    from intake_ledger.protocol.commit_tag import CommitTag
    from intake_ledger.protocol.exclude import Exclude
    from intake_ledger.protocol.group_pattern import GroupPattern
    from intake_ledger.protocol.same_content import ContentRule

PIPELINE_TAG = "intake-ledger:pipeline"
"""A tag with the pipeline's name on each bucket, table and queue of a pipeline: `intake-ledger status` lists them."""
VERSION_BYTES = 12
"""The length of a processor's version in a row. Twelve digits of an asset's hash do not repeat within a pipeline."""
STATE_MACHINE = "INTAKE_STATE_MACHINE"
DURABLE_FUNCTION = "INTAKE_DURABLE_FUNCTION"
STOP_OVERTAKEN = "INTAKE_STOP_OVERTAKEN"
ELSEWHERE = (STATE_MACHINE, DURABLE_FUNCTION)
MESSAGE_VARIABLES = MESSAGE_SOURCE, MESSAGE_KEY, MESSAGE_IDENTITY = (
    "INTAKE_MESSAGE_SOURCE",
    "INTAKE_MESSAGE_KEY",
    "INTAKE_MESSAGE_IDENTITY",
)
SET_VARIABLES = SET_FORM, SET_PARTS_PIPELINE = "INTAKE_SET_FORM", "INTAKE_SET_PARTS_PIPELINE"
"""Names by which a cold start chooses its kind and its runner, before it imports their settings."""
PART_LISTS = "INTAKE_PART_LISTS"
"""The place of the lists of a set's parts, for a processor elsewhere."""


@dataclass(frozen=True, slots=True)
class Variable:
    """The environment variable of a setting, in the `Annotated` type of a dataclass's field.

    The type says how a text is read: `int`, `bool`, an enumeration, or a text. `str | None` reads an empty text as
    None. A field with a default need not be set.
    """

    name: str
    least: int = 0
    """The smallest number."""
    most: int | None = None
    """The largest number. None: there is no limit."""
    parse: Callable[[str, str], Any] | None = None
    """Reads other types. Its arguments are the variable's name and its text. It raises SettingsError."""


def settings_from[Settings](kind: type[Settings], environment: Mapping[str, str], **given: object) -> Settings:
    """Read a dataclass of settings. `given` has fields that are known already, or that have no variable.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    read = {field.name: _read(field, variable, environment) for field, variable in _variables(kind)}
    return kind(**read | given)


def setting_from(kind: type, field: str, environment: Mapping[str, str]) -> Any:
    """Read one field, for those that need few. Raises SettingsError."""
    return next(_read(one, variable, environment) for one, variable in _variables(kind) if one.name == field)


def environment_of(kind: type, **values: object) -> dict[str, str]:
    """The variables of these fields. A value is a text or as the field's; None leaves it out. Tokens pass as texts."""
    names = {field.name: variable.name for field, variable in _variables(kind)}
    return {names[name]: _text(value) for name, value in values.items() if value is not None}


def variable_of(kind: type, field: str) -> str:
    """The name of a field's variable."""
    return next(variable.name for one, variable in _variables(kind) if one.name == field)


def _variables(kind: Any) -> Iterator[tuple[Field[Any], Variable]]:
    for field in fields(kind):
        for note in getattr(field.type, "__metadata__", ()):
            yield field, note


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _read(field: Field[Any], variable: Variable, environment: Mapping[str, str]) -> Any:
    name, kind = variable.name, getattr(field.type, "__origin__")  # noqa: B009 - an `Annotated` has it
    text = environment.get(name)
    if text is None and field.default is not MISSING:
        return field.default
    if kind == str | None and variable.parse is None:
        return text or None
    if text is None or (text == "" and field.default is MISSING):
        raise missing(name)
    if variable.parse is not None:
        return variable.parse(name, text)
    if kind in (int, int | None):
        return _whole(name, text, variable)
    if kind is bool:
        return _choice(name, text, ("true", "false")) == "true"
    return kind(_choice(name, text, tuple(kind)) if issubclass(kind, StrEnum) else text)


def missing(name: str) -> SettingsError:
    """The error for a variable that is not set, or empty."""
    return SettingsError(f"the environment variable {name} is not set: deploy the construct's own function, or set it")


def _choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise SettingsError(f"{name} is {text!r}, expected one of {', '.join(allowed)}")
    return text


def _whole(name: str, text: str, variable: Variable) -> int:
    least, most = variable.least, variable.most
    if not text.isascii() or not text.isdecimal() or int(text) < least or (most is not None and int(text) > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise SettingsError(f"{name} is {text!r}, expected a whole number {allowed}")
    return int(text)


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


def key_filters(name: str, text: str) -> tuple[KeyFilter, ...]:
    """Read filters in JSON. Raises SettingsError."""
    try:
        return tuple(_key_filter(content) for content in _list(json.loads(text)))
    except (AttributeError, TypeError, ValueError) as problem:
        raise SettingsError(f"{name} is {text!r}, expected a JSON list of prefixes and suffixes: {problem}") from None


def _list(content: object) -> list[dict[str, object]]:
    if not isinstance(content, list):
        raise TypeError(f"{content!r} is not a list")
    return content


def _key_filter(content: dict[str, object]) -> KeyFilter:
    texts = {name: text for name, text in content.items() if isinstance(text, str)}
    if texts != content:
        raise TypeError(f"{content} has a value that is not a text")
    return KeyFilter(**texts)


def short_version(text: str) -> str | None:
    """The version as rows have it: the first 12 bytes. A row then still fits into one write unit. None: it is empty."""
    return text.encode()[:VERSION_BYTES].decode("utf-8", "ignore") or None


def _version(_: str, text: str) -> str | None:
    return short_version(text)


def _of(module: str, function: str) -> Callable[[str, str], Any]:
    """The reader of an option, imported when its variable is set."""

    def read(name: str, text: str) -> Any:
        return getattr(import_module(f"intake_ledger.protocol.{module}"), function)(name, text)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of both the consumer and the audit. Durations are in seconds."""

    pipeline: Annotated[str, Variable("INTAKE_PIPELINE_NAME")]
    bucket: Annotated[str, Variable("INTAKE_BUCKET_NAME")]
    bucket_owner: Annotated[str | None, Variable("INTAKE_BUCKET_OWNER")]
    table: Annotated[str, Variable("INTAKE_TABLE_NAME")]
    queue_url: Annotated[str, Variable("INTAKE_QUEUE_URL")]
    ordering: Annotated[Ordering, Variable("INTAKE_ORDERING")]
    deletes: Annotated[bool, Variable("INTAKE_DELETES")]
    retention_seconds: Annotated[int, Variable("INTAKE_RETENTION_SECONDS", 1)]
    clock_skew_seconds: Annotated[int, Variable("INTAKE_CLOCK_SKEW_SECONDS")]
    filters: Annotated[tuple[KeyFilter, ...], Variable("INTAKE_KEY_FILTERS", parse=key_filters)] = ()
    """The pipeline handles the keys that pass one of these filters. Without filters, it handles all keys."""
    keeps_rows: Annotated[bool, Variable("INTAKE_KEEP_ROWS")] = False
    """True if the row of an object stays as long as the object. Then only committed removals expire."""
    skips_existing: Annotated[bool, Variable("INTAKE_SKIP_EXISTING")] = False
    """True if the pipeline skips objects without a row that are older than the pipeline."""
    directory_markers: Annotated[bool, Variable("INTAKE_DIRECTORY_MARKERS")] = False
    """True if the pipeline processes directory markers. Otherwise it skips those without a row."""
    after_commit: Annotated[
        "CommitTag | None", Variable("INTAKE_AFTER_COMMIT", parse=_of("commit_tag", "commit_tag"))
    ] = None
    """The tag that a version gets after its commit. None: it gets none."""
    exclude: Annotated["Exclude | None", Variable("INTAKE_EXCLUDE", parse=_of("exclude", "read_exclude"))] = None
    """The patterns of keys that the pipeline leaves out, unless they have a row. None: it leaves out none."""
    ready_when: Annotated[
        "AwaitedTag | None", Variable("INTAKE_READY_WHEN", parse=_of("awaited_tag", "awaited_tag"))
    ] = None
    """The tag without which no version is processed. None: none is needed."""
    same_content: Annotated[
        "ContentRule | None", Variable("INTAKE_SAME_CONTENT", parse=_of("same_content", "content_rule"))
    ] = None
    """How a copy in place is known, which is not processed again. None: each version is processed."""

    def wants(self, key: str) -> bool:
        """True if the key passes the pipeline's filters."""
        return not self.filters or any(key_filter.matches(key) for key_filter in self.filters)

    def excludes(self, key: str) -> bool:
        """True if the pipeline leaves out the key, unless it has a row."""
        return self.exclude is not None and self.exclude.matches(key)

    def takes(self, key: str) -> bool:
        """True if the pipeline handles the key, also without a row."""
        return self.wants(key) and not self.excludes(key)

    def skips(self, key: str, state: State) -> Skipped | None:
        """Why the pipeline skips this state, unless it has a row. None: it does not."""
        if self.exclude is not None and self.exclude.leaves_out(key, state.created_at):
            return Skipped.EXCLUDED
        if self.directory_markers:
            return None
        every_version = self.ordering is Ordering.EVERY_VERSION
        return Skipped.DIRECTORY_MARKERS if is_skipped_marker(key, state, every_version=every_version) else None


def settings_of_sets[Of: Settings](parts: Of) -> Of:
    """The settings of sets, from those of their parts. The filters and patterns are for parts only, and the key of a
    folder ends as that of a directory marker.
    """
    return replace(parts, filters=(), exclude=None, directory_markers=True)


HOLD_SHARE = 0.75
"""The longest wait of a message for a failing downstream, as a share of the retention of its source. The rest is for
its last attempts, so that the message reaches the dead-letter queue with its reason before the source deletes it."""
LAST_TRY_SHARE = 0.95
"""The last attempt on a message begins within this share of the retention of its source, if no audit would find the
message again. The rest is for this attempt, and for those of other messages that end at the same time."""


def last_try_seconds(max_hold_seconds: float) -> float:
    """The age at which the last attempt on a message begins at the latest, for the `max_hold` of its source."""
    return max_hold_seconds / HOLD_SHARE * LAST_TRY_SHARE


MOST_PER_CALL = 100
"""The most changes in one call. Their claims and commits fit in the seconds that a function has beyond its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(Settings):
    dlq_url: Annotated[str, Variable("INTAKE_DLQ_URL")]
    processor: Annotated[str, Variable("INTAKE_PROCESSOR")] = ""
    """The entrypoint of the processor; empty if another function or a state machine is the processor."""
    processing_timeout_seconds: Annotated[int, Variable("INTAKE_PROCESSING_TIMEOUT_SECONDS", 1)]
    max_attempts: Annotated[int, Variable("INTAKE_MAX_ATTEMPTS", 2)]
    """At least two: a worker that dies before it starts may waste one attempt."""
    min_backoff_seconds: Annotated[int, Variable("INTAKE_MIN_BACKOFF_SECONDS")]
    max_backoff_seconds: Annotated[int, Variable("INTAKE_MAX_BACKOFF_SECONDS")]
    max_event_age_seconds: Annotated[int, Variable("INTAKE_MAX_EVENT_AGE_SECONDS")]
    processor_function: Annotated[str | None, Variable("INTAKE_PROCESSOR_FUNCTION")] = None
    """The Lambda function that is the processor. None: `processor` is."""
    sets: Annotated[str, Variable("INTAKE_SETS")] = ""
    """The sets of files that have the pipeline's objects as parts, in JSON, for `intake_ledger.set_members`."""
    has_workers: Annotated[bool, Variable("INTAKE_WORKERS")] = False
    """True if workers take the messages instead of the function. The command tells the two apart."""
    threads: Annotated[int, Variable("INTAKE_CONCURRENCY", 1)] = 1
    """The number of records of a batch that are processed at the same time."""
    max_receives: Annotated[int, Variable("INTAKE_MAX_RECEIVES", 2)] = 1_000
    """The queue's maxReceiveCount."""
    in_flight_limit: Annotated[int, Variable("INTAKE_IN_FLIGHT_LIMIT", 1)] = 120_000
    """The number of messages in flight at which SQS delivers no more of them: a quota of SQS for standard queues."""
    least_copy_seconds: Annotated[int, Variable("INTAKE_LEAST_COPY_SECONDS", 1)] = 60
    """The shortest wait of a delayed copy. It costs two requests more, so shorter waits stay in flight."""
    max_wait_seconds: Annotated[int, Variable("INTAKE_MAX_WAIT_SECONDS", 1)] = 3 * 86_400
    """The longest time for which a change waits after `NotYet`."""
    alarm_after_seconds: Annotated[int, Variable("INTAKE_ALARM_AFTER_SECONDS")] = 0
    """The wait of a set that is long. 0: a share of `max_wait_seconds`."""
    max_hold_seconds: Annotated[int, Variable("INTAKE_MAX_HOLD_SECONDS", 1)] = 3 * 86_400
    """The longest time for which a message waits for a failing downstream: `HOLD_SHARE` of its source's retention.
    After it, the next failure rejects a change of an object, and failures of a keyed message spend attempts."""
    commit_together: Annotated[bool, Variable("INTAKE_COMMIT_TOGETHER")] = False
    """True if changes that were claimed together are committed together."""
    max_per_call: Annotated[int, Variable("INTAKE_MAX_PER_CALL", 1, MOST_PER_CALL)] = 1
    """The largest number of changes in one call of the processor. Above 1, it takes a list and returns results."""
    exclusive_by: Annotated[
        "GroupPattern | None", Variable("INTAKE_EXCLUSIVE_BY", parse=_of("group_pattern", "group_pattern"))
    ] = None
    """The groups of keys in which one attempt at most is live. None: there are no groups."""
    reasons: Annotated[Reasons, Variable("INTAKE_REASONS")] = Reasons.TYPES
    """The details about a failed attempt in rows, dead-letter messages and logs."""
    rejects: Annotated[str | None, Variable("INTAKE_REJECTS")] = None
    """The place of outputs with rejected rows: the bucket's name, a slash, and the beginning of their keys. None: there
    is none."""
    max_rate: Annotated[float | None, Variable("INTAKE_MAX_RATE", parse=_of("rate", "read_rate"))] = None
    """The limit of starts per second of all workers. None: there is no limit."""
    max_burst: Annotated[int | None, Variable("INTAKE_MAX_BURST", parse=_of("rate", "read_burst"))] = None
    """Starts that may come at once. None: see `Rate`."""
    processor_version: Annotated[str | None, Variable("INTAKE_PROCESSOR_VERSION", parse=_version)] = None
    """The version of the processor's code, shortened as `short_version` does. None: it is not known."""

    @property
    def is_fifo(self) -> bool:
        """True if the queue keeps the order of message groups."""
        return self.queue_url.endswith(".fifo")


def elsewhere_of(environment: Mapping[str, str]) -> str | None:
    """The variable that names the place of work that answers later. None: the work is done in a call.

    Raises:
        SettingsError: Two places are named.

    """
    names = [name for name in ELSEWHERE if environment.get(name)]
    if len(names) > 1:
        raise SettingsError(f"{' and '.join(names)} are set: a consumer has one processor. Set one of them")
    return names[0] if names else None


def longest_execution_seconds(environment: Mapping[str, str]) -> int | None:
    """The limit of work that outlives leases. None: no work does. Raises SettingsError."""
    place = elsewhere_of(environment)
    if place is None:
        return None
    if place == DURABLE_FUNCTION:
        from intake_ledger.protocol.settings_durable import DurableSettings  # noqa: PLC0415 - few have one

        return settings_from(DurableSettings, environment).execution_seconds
    from intake_ledger.protocol.settings_executions import execution_settings  # noqa: PLC0415 - as above

    return execution_settings(environment).execution_seconds


def entrypoint_of(settings: ConsumerSettings) -> str:
    """The entrypoint of the processor in this process.

    Raises:
        SettingsError: There is none, and no other runner either.

    """
    if not settings.processor:
        raise missing(variable_of(ConsumerSettings, "processor"))
    return settings.processor
