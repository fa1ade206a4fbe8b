"""Options that the constructor of a pipeline refuses."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, Token
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import (
    AuditOptions,
    ConcurrencyOptions,
    IntakeConfigurationError,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    Processor,
    RetryOptions,
)
from tests.synth.build import PROCESSORS, Json, later, new_stack, processor, refused, rules_in


def refusal(**options: Any) -> IntakeConfigurationError:
    stack = options.pop("stack", None) or new_stack()
    with pytest.raises(IntakeConfigurationError) as caught:
        IntakePipeline(stack, "Orders", **({"processor": processor()} | options))
    return caught.value


def test_all_problems_are_told_at_once() -> None:
    """One synthesis shows all problems, with the path of the construct."""
    stack = new_stack()
    error = refusal(
        stack=stack,
        processor=Processor.from_asset(PROCESSORS / "orders", entrypoint="orders:proces", memory_size=64),
        processing_timeout=Duration.minutes(15),
        concurrency=ConcurrencyOptions(batch_size=0, max_concurrency=1),
        retry=RetryOptions(max_attempts=1),
        ledger=IntakeLedger(stack, "Ledger", retention=Duration.days(7)),
        audit=AuditOptions(look_back=Duration.days(60)),
        filters=[s3.NotificationKeyFilter(prefix="in/"), s3.NotificationKeyFilter(prefix="in/a/")],
    )
    assert error.path == "Stack/Orders"
    expected = (
        "'proces'",
        "memory_size",
        "processing_timeout",
        "batch_size",
        "max_concurrency",
        "max_attempts",
        "ledger's",
        "look_back",
        "overlap",
    )
    for word in expected:
        assert any(word in problem for problem in error.problems), word
    assert len(error.problems) == len(expected)
    assert all(problem in str(error) for problem in error.problems)
    assert str(error).startswith("Stack/Orders: 9 problems\n  - ")


def test_a_single_problem_is_one_line() -> None:
    """The message has no count and no list."""
    error = refusal(concurrency=ConcurrencyOptions(batch_size=0))
    assert str(error) == f"Stack/Orders: {error.problems[0]}"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"processing_timeout": Duration.minutes(15)},
            "processing_timeout is 15 minutes: it must be 1 second to 890 seconds",
        ),
        (
            {"processing_timeout": Duration.millis(1_500)},
            "processing_timeout is 1.5 seconds: it must be a whole number",
        ),
        (
            {"concurrency": ConcurrencyOptions(batch_size=20_000, max_batching_window=Duration.seconds(1))},
            "batch_size is 20,000: it must be 1 to 10,000",
        ),
        ({"concurrency": ConcurrencyOptions(batch_size=11)}, "batch_size is 11 without a max_batching_window"),
        ({"concurrency": ConcurrencyOptions(max_concurrency=1)}, "max_concurrency is 1: it must be 2 to 1,000"),
        (
            {"audit": AuditOptions(interval=Duration.seconds(90))},
            "audit_interval is 90 seconds: it must be a whole number of minutes",
        ),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_value(options: Json, text: str) -> None:
    """The message has the value and the range."""
    assert text in str(refusal(**options))


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"exclusive_by": "in/{account}"}, "group-pattern", r"'in/\{account\}': no text follows"),
        ({"exclusive_by": ""}, "group-pattern", "no placeholder that names a group"),
        ({"exclusive_by": "in/{a}/"}, "group-outside-filters", "prefix 'orders/' only"),
        (
            {"exclusive_by": "orders/{a}/", "commit_together": True},
            "groups-without-commit-together",
            "Omit commit_together",
        ),
    ],
)
def test_groups_that_cannot_work_are_refused(options: Json, rule: str, text: str) -> None:
    with refused(rule, text):
        IntakePipeline(
            new_stack(),
            "Orders",
            processor=processor(),
            filters=[s3.NotificationKeyFilter(prefix="orders/")],
            concurrency=ConcurrencyOptions(**options),
        )


def test_the_changes_of_a_call_have_no_groups() -> None:
    made = Processor.from_code(lambda_.Code.from_inline("def process(changes): ..."), entrypoint="a:p", max_per_call=2)
    with refused("groups-without-calls", "max_per_call is 2"):
        IntakePipeline(
            new_stack(), "Orders", processor=made, concurrency=ConcurrencyOptions(exclusive_by="in/{account}/")
        )


def test_a_pattern_of_groups_is_needed_at_synthesis() -> None:
    with refused("group-pattern", "its value is needed at synthesis"):
        concurrency = ConcurrencyOptions(exclusive_by=Token.as_string({"Ref": "Pattern"}))
        IntakePipeline(new_stack(), "Orders", processor=processor(), concurrency=concurrency)


def test_a_queue_that_hides_messages_too_shortly_is_refused() -> None:
    """Synthesis can read the visibility timeout. Lambda would refuse it at deployment."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", visibility_timeout=Duration.minutes(2))
    assert "visibility_timeout is 2 minutes" in str(refusal(stack=stack, queue=queue))


@pytest.mark.failure_mode("F67")
def test_a_dead_letter_queue_that_forgets_first_is_refused() -> None:
    """SQS would delete a message before its review."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", retention=Duration.days(10), dead_letter_retention=Duration.days(9))
    assert "dead-letter queue's retention is 9 days and the queue's retention is 10 days" in str(
        refusal(stack=stack, queue=queue)
    )


def test_a_queue_serves_one_pipeline() -> None:
    """Two consumers would take each other's messages."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer")
    IntakePipeline(stack, "Invoices", processor=processor(), queue=queue)
    assert "Stack/Buffer already belongs to Stack/Invoices" in str(refusal(stack=stack, queue=queue))


@pytest.mark.parametrize(
    "options",
    [
        {"processing_timeout": Duration.seconds(later())},
        {"concurrency": ConcurrencyOptions(clock_skew=Duration.minutes(later()))},
        {"concurrency": ConcurrencyOptions(max_batching_window=Duration.seconds(later()))},
        {"audit": AuditOptions(interval=Duration.minutes(later()))},
    ],
)
def test_times_that_others_follow_from_are_needed_at_synthesis(options: Json) -> None:
    """CDK would calculate with a placeholder: the sum of a token and ten is that token."""
    (problem,) = refusal(**options).problems
    assert "is a token: its value is needed at synthesis" in problem
    assert rules_in(problem) == ["needed-at-synthesis"]


@pytest.mark.parametrize(
    ("made", "rule", "text"),
    [
        (lambda: processor(environment={"INTAKE_TABLE_NAME": "mine"}), "environment-name", "has 'INTAKE_TABLE_NAME'"),
        (
            lambda: processor(environment={"POWERTOOLS_SERVICE_NAME": "x"}),
            "environment-name",
            "has 'POWERTOOLS_SERVICE_NAME'",
        ),
        (lambda: processor(environment={"": "x"}), "environment-name", "Lambda takes a letter and then"),
        (lambda: processor(environment={"a-b": "x"}), "environment-name", "has 'a-b'"),
        (lambda: processor(environment={"X": "x"}), "environment-name", "has 'X'"),
        (lambda: processor(environment={"AWS_REGION": "x"}), "environment-name", "Lambda sets this variable"),
        (lambda: processor(environment={"RULES": "x" * 4_092}), "environment-size", "has 4,097 bytes"),
        (
            lambda: processor(runtime=lambda_.Runtime.PYTHON_3_11),
            "runtime-version",
            "processor runtime is 'python3.11'",
        ),
        (
            lambda: processor(runtime=lambda_.Runtime.NODEJS_22_X),
            "runtime-version",
            "processor runtime is 'nodejs22.x'",
        ),
        (
            lambda: Processor.from_asset("nowhere", entrypoint="a:b"),
            "processor-path",
            "processor path 'nowhere' does not exist",
        ),
        (
            lambda: Processor.from_code(lambda_.Code.from_inline("x"), entrypoint="orders"),
            "entrypoint-format",
            "is not of the form",
        ),
    ],
)
def test_a_processor_that_cannot_run_is_refused(made: Callable[[], Processor], rule: str, text: str) -> None:
    """The pipeline reports it with all other problems."""
    (problem,) = refusal(processor=made()).problems
    assert text in problem
    assert rules_in(problem) == [rule]


def test_refusals_are_written_alike() -> None:
    """Each begins in lower case, and has the value, the fix and the rule's ID."""
    for problem in refusal(
        concurrency=ConcurrencyOptions(batch_size=0), processor=Processor.from_asset("nowhere", entrypoint="a:b")
    ).problems:
        assert re.match(r"[a-z].*: .*\. [A-Z].*[^.] \[intake-ledger:[a-z-]+\]$", problem), problem


@pytest.mark.failure_mode("F102")
def test_a_wait_may_be_longer_than_a_standard_queue_keeps_a_message() -> None:
    """F332: its message copies itself. A FIFO queue keeps its order, so its messages do not."""
    stack = new_stack()
    month = RetryOptions(max_wait=Duration.days(30))
    IntakePipeline(stack, "Orders", processor=processor(), retry=month)
    with refused("max-wait-within-retention", "Set max_wait to at most 3 days, or lengthen the shorter retention"):
        MessageIntake(
            stack, "Shop", source=MessageSource.fifo(), key="k", identity="i", processor=processor(), retry=month
        )
