"""Rules about workers outside of Lambda."""

from collections.abc import Iterator

from cdk_intake_ledger.validation.plan import HOUR, span
from cdk_intake_ledger.validation.registry import Problem, Subject

SUBJECT = Subject("Workers outside of Lambda")
LONGEST = 11 * HOUR

WORKER_PROCESSING_TIMEOUT = SUBJECT.error(
    "worker-processing-timeout",
    inputs=("processing_timeout",),
    what="the workers' processing_timeout is {value}",
    why="SQS hides a message for at most 12 hours, so a longer attempt would run twice",
    fix="Use 1 second to {longest}, and split longer work",
)
WORKER_TASKS = SUBJECT.error(
    "worker-tasks",
    inputs=("min_tasks", "max_tasks"),
    what="min_tasks is {least} and max_tasks is {most}",
    why="the number of tasks lies between them, and without a task nothing is processed",
    fix="Use 0 or more for min_tasks, and at least 1 and min_tasks for max_tasks",
)
WORKER_TARGET_AGE = SUBJECT.error(
    "worker-target-age",
    inputs=("target_age",),
    what="target_age is {value}",
    why="CloudWatch has one value of the queue's age for each minute",
    fix="Use at least 1 minute",
)
WORKER_PROCESSOR = SUBJECT.error(
    "worker-processor",
    inputs=("pipeline",),
    what="the processor of the workers' pipeline is an existing {kind}",
    why="the work happens there, and the pipeline's function only starts it",
    fix="Omit the workers, or give the pipeline a processor with an entry point",
)


def worker_problems(
    processing_timeout: float | None, *, tasks: tuple[int, int], target_age: float, existing: str = ""
) -> Iterator[Problem]:
    """The problems of these options.

    Args:
        processing_timeout: the option, in seconds.
        tasks: the smallest and the largest number.
        target_age: the option, in seconds.
        existing: the kind of the existing resource that is the processor; empty if the processor is code.

    """
    if existing:
        yield WORKER_PROCESSOR.problem(kind=existing)
    if processing_timeout is not None and not 1 <= processing_timeout <= LONGEST:
        yield WORKER_PROCESSING_TIMEOUT.problem(value=span(processing_timeout), longest=span(LONGEST))
    least, most = tasks
    if least < 0 or most < max(least, 1):
        yield WORKER_TASKS.problem(least=least, most=most)
    if target_age < 60:
        yield WORKER_TARGET_AGE.problem(value=span(target_age))
