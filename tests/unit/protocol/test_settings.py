"""Read the functions' settings, or name a wrong variable, its value and the allowed values."""

import json
from dataclasses import fields
from typing import Any

import pytest

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import ConsumerSettings, KeyFilter, entrypoint_of, environment_of, settings_from
from intake_ledger.protocol.settings_audit import AuditSettings, Reports, audit_settings

COMMON = {
    "INTAKE_PIPELINE_NAME": "Stack-Invoices",
    "INTAKE_BUCKET_NAME": "uploads",
    "INTAKE_BUCKET_OWNER": "111122223333",
    "INTAKE_TABLE_NAME": "ledger",
    "INTAKE_QUEUE_URL": "https://sqs/queue",
    "INTAKE_ORDERING": "LATEST",
    "INTAKE_DELETES": "false",
    "INTAKE_RETENTION_SECONDS": "3024000",
    "INTAKE_CLOCK_SKEW_SECONDS": "120",
    "INTAKE_KEY_FILTERS": json.dumps([{"prefix": "in/", "suffix": ".csv"}, {"suffix": ".json"}]),
    "INTAKE_KEEP_ROWS": "true",
    "INTAKE_SKIP_EXISTING": "true",
    "INTAKE_DIRECTORY_MARKERS": "true",
}
FILTERS = {name: text for name, text in COMMON.items() if name == "INTAKE_KEY_FILTERS"}
READ: dict[str, Any] = {
    "pipeline": "Stack-Invoices",
    "bucket": "uploads",
    "bucket_owner": "111122223333",
    "table": "ledger",
    "queue_url": "https://sqs/queue",
    "ordering": Ordering.LATEST,
    "deletes": False,
    "retention_seconds": 3_024_000,
    "clock_skew_seconds": 120,
    "filters": (KeyFilter("in/", ".csv"), KeyFilter("", ".json")),
    "keeps_rows": True,
    "skips_existing": True,
    "directory_markers": True,
}
"""The settings that both read from `COMMON`."""
CONSUMER = COMMON | {
    "INTAKE_DLQ_URL": "https://sqs/dlq",
    "INTAKE_PROCESSOR": "invoices:process",
    "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
    "INTAKE_MAX_ATTEMPTS": "8",
    "INTAKE_MIN_BACKOFF_SECONDS": "15",
    "INTAKE_MAX_BACKOFF_SECONDS": "900",
    "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
}
AUDIT = COMMON | {
    "INTAKE_SETTLE_SECONDS": "3600",
    "INTAKE_LOOK_BACK_SECONDS": "1209600",
    "INTAKE_AUDIT_MAX_RESUBMISSIONS": "10000",
}


def test_the_consumers_settings() -> None:
    """Every variable has its place."""
    assert settings_from(ConsumerSettings, CONSUMER) == ConsumerSettings(
        **READ,
        dlq_url="https://sqs/dlq",
        processor="invoices:process",
        processing_timeout_seconds=60,
        max_attempts=8,
        min_backoff_seconds=15,
        max_backoff_seconds=900,
        max_event_age_seconds=21_600,
    )


def without(name: str) -> dict[str, str]:
    """Neither function has this variable."""
    return {key: text for key, text in (CONSUMER | AUDIT).items() if key != name}


REPORTS = {"INTAKE_REPORT_BUCKET": "reports", "INTAKE_REPORT_PREFIX": "a/"}


@pytest.mark.failure_mode("F29")
@pytest.mark.parametrize(
    ("environment", "name", "value"),
    [
        # A consumer that was deployed before an option goes on as it did.
        ({}, "threads", 1),
        ({"INTAKE_CONCURRENCY": "4"}, "threads", 4),
        ({}, "commit_together", False),
        ({"INTAKE_COMMIT_TOGETHER": "true"}, "commit_together", True),
        ({}, "reports", None),
        (REPORTS, "reports", Reports("reports", "a/")),
        (REPORTS | {"INTAKE_REPORT_BUCKET_OWNER": "1111"}, "reports", Reports("reports", "a/", "1111")),
        # The owner of an imported bucket may be unknown.
        (without("INTAKE_BUCKET_OWNER"), "bucket_owner", None),
        ({"INTAKE_BUCKET_OWNER": ""}, "bucket_owner", None),
        (without("INTAKE_KEY_FILTERS"), "filters", ()),
        ({"INTAKE_KEY_FILTERS": "[]"}, "filters", ()),
        # A version of the processor has at most twelve bytes.
        ({"INTAKE_PROCESSOR_VERSION": ""}, "processor_version", None),
        ({"INTAKE_PROCESSOR_VERSION": "1.4"}, "processor_version", "1.4"),
        ({"INTAKE_PROCESSOR_VERSION": "0123456789abcdef" * 4}, "processor_version", "0123456789ab"),
        ({"INTAKE_PROCESSOR_VERSION": "é" * 9}, "processor_version", "é" * 6),
    ],
)
def test_what_is_optional_has_a_default(environment: dict[str, str], name: str, value: object) -> None:
    given = environment if "INTAKE_TABLE_NAME" in environment else CONSUMER | AUDIT | environment
    read = [one for one in (settings_from(ConsumerSettings, given), audit_settings(given)) if hasattr(one, name)]
    assert {getattr(one, name) for one in read} == {value}
    if value == ():
        assert audit_settings(given).wants("anything"), "as with S3's notification configuration"


def test_groups_are_read_from_their_pattern() -> None:
    """A malformed one names the variable and the reason."""
    assert settings_from(ConsumerSettings, CONSUMER).exclusive_by is None
    groups = settings_from(ConsumerSettings, CONSUMER | {"INTAKE_EXCLUSIVE_BY": "in/{account}/"}).exclusive_by
    assert groups is not None
    assert groups.group_of("in/acme/1") == "acme"
    with pytest.raises(SettingsError, match=r"INTAKE_EXCLUSIVE_BY is 'in/\{account\}': no text follows"):
        settings_from(ConsumerSettings, CONSUMER | {"INTAKE_EXCLUSIVE_BY": "in/{account}"})


def test_the_audits_settings() -> None:
    """Likewise."""
    assert audit_settings(AUDIT) == AuditSettings(
        **READ,
        settle_seconds=3_600,
        look_back_seconds=1_209_600,
        budget=10_000,
    )


OPTIONAL = {"INTAKE_BUCKET_OWNER", "INTAKE_KEY_FILTERS", "INTAKE_KEEP_ROWS", "INTAKE_SKIP_EXISTING"}
OPTIONAL |= {"INTAKE_DIRECTORY_MARKERS"}


@pytest.mark.parametrize("name", sorted(set(CONSUMER) - OPTIONAL - {"INTAKE_PROCESSOR"}))
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named(name: str, value: str | None) -> None:
    """Unset and empty are the same."""
    environment = {key: text for key, text in CONSUMER.items() if key != name}
    if value is not None:
        environment[name] = value
    with pytest.raises(SettingsError, match=name):
        settings_from(ConsumerSettings, environment)


@pytest.mark.parametrize("more", [{}, {"INTAKE_PROCESSOR": ""}])
def test_a_consumer_without_a_processor_names_the_variable(more: dict[str, str]) -> None:
    """Another function or a state machine needs none, so the choice of the runner notices it."""
    environment = {key: text for key, text in CONSUMER.items() if key != "INTAKE_PROCESSOR"} | more
    with pytest.raises(SettingsError, match="INTAKE_PROCESSOR is not set"):
        entrypoint_of(settings_from(ConsumerSettings, environment))


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("INTAKE_ORDERING", "latest", "LATEST, EVERY_VERSION"),
        ("INTAKE_DELETES", "True", "true, false"),
        ("INTAKE_RETENTION_SECONDS", "0", "at least 1"),
        ("INTAKE_RETENTION_SECONDS", "35d", "whole number"),
        ("INTAKE_RETENTION_SECONDS", "-1", "whole number"),
        ("INTAKE_RETENTION_SECONDS", "1.5", "whole number"),
        ("INTAKE_RETENTION_SECONDS", "\uff11\uff12", "whole number"),
        ("INTAKE_PROCESSING_TIMEOUT_SECONDS", "0", "at least 1"),
        ("INTAKE_MAX_ATTEMPTS", "1", "at least 2"),
        ("INTAKE_CLOCK_SKEW_SECONDS", " 1", "whole number"),
    ],
)
def test_a_malformed_variable_is_named_with_its_value(name: str, value: str, allowed: str) -> None:
    """The error also names the allowed values."""
    with pytest.raises(SettingsError) as refused:
        settings_from(ConsumerSettings, CONSUMER | {name: value})
    assert str(refused.value).startswith(f"{name} is {value!r}")
    assert allowed in str(refused.value)


@pytest.mark.failure_mode("F09")
def test_the_smallest_values_are_taken() -> None:
    """A retention is never nothing; waits may be."""
    settings = settings_from(
        ConsumerSettings,
        CONSUMER
        | {
            "INTAKE_RETENTION_SECONDS": "1",
            "INTAKE_MAX_ATTEMPTS": "2",
            "INTAKE_MIN_BACKOFF_SECONDS": "0",
            "INTAKE_CLOCK_SKEW_SECONDS": "0",
        },
    )
    assert (settings.retention_seconds, settings.max_attempts, settings.min_backoff_seconds) == (1, 2, 0)


@pytest.mark.parametrize(
    "filters",
    [
        "",
        "{",
        "null",
        "[1]",
        "[null]",
        '["in/"]',
        '[{"prefx": "in/"}]',
        "7",
        '[["in/"]]',
        '[{"prefix": null}]',
        '[{"suffix": 5}]',
        '[{"prefix": ["in/"]}]',
        '[{"prefix": "in/", "suffix": false}]',
    ],
)
def test_malformed_filters_are_refused(filters: str) -> None:
    """A filter that is misread would report losses that are none."""
    with pytest.raises(SettingsError, match="INTAKE_KEY_FILTERS"):
        audit_settings(AUDIT | {"INTAKE_KEY_FILTERS": filters})


@pytest.mark.failure_mode("F47")
@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("in/a.csv", True),
        ("in/.csv", True),
        ("in/a.txt", False),
        ("out/a.csv", False),
        ("a.json", True),
        ("in%2Fa.csv", False),
    ],
)
def test_filters_are_of_raw_keys(key: str, wanted: bool) -> None:
    """Prefix and suffix both, any of several filters, and no encoding."""
    assert audit_settings(AUDIT).wants(key) is wanted


def test_each_setting_is_read_from_the_variable_that_it_is_written_to() -> None:
    """Constructs write by the names of fields. Values may be tokens, which are texts. None is left out."""
    values = {"pipeline": "p", "deletes": True, "ordering": Ordering.LATEST, "retention_seconds": "${Token[7]}"}
    assert environment_of(ConsumerSettings, **values, bucket_owner=None) == {
        "INTAKE_PIPELINE_NAME": "p",
        "INTAKE_DELETES": "true",
        "INTAKE_ORDERING": "LATEST",
        "INTAKE_RETENTION_SECONDS": "${Token[7]}",
    }
    read = settings_from(ConsumerSettings, CONSUMER)
    written = {field.name: getattr(read, field.name) for field in fields(read)}
    assert settings_from(ConsumerSettings, environment_of(ConsumerSettings, **written) | FILTERS) == read
    with pytest.raises(KeyError, match="no_field"):
        environment_of(ConsumerSettings, no_field=1)
