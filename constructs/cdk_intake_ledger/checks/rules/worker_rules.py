"""Rules about workers outside of Lambda."""

from collections.abc import Iterator

from cdk_intake_ledger.checks.plan import PROCESSOR_MARGIN
from cdk_intake_ledger.checks.registry import Problem, Subject
from cdk_intake_ledger.checks.spans import HOUR, span

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
WORKER_STREAM = SUBJECT.error(
    "worker-stream",
    inputs=("pipeline",),
    what="the messages of the workers' intake come from a {source} stream",
    why="workers receive from SQS, and only Lambda polls the stream and keeps its place in each shard",
    fix="Omit the workers, or send the messages through a queue",
)
WORKER_FUNCTION = SUBJECT.error(
    "worker-ends-after-function",
    inputs=("processing_timeout",),
    what="the workers' processing_timeout is {value} and the processor's function may run for {function}",
    why="the function could still run when the worker stops waiting for it",
    fix="Set a processing_timeout of at least {least}, or omit it",
)


def worker_problems(
    processing_timeout: float | None, *, tasks: tuple[int, int], target_age: float, function_timeout: float, stream: str
) -> Iterator[Problem]:
    """The problems of these options.

    Args:
        processing_timeout: the option, in seconds.
        tasks: the smallest and the largest number.
        target_age: the option, in seconds.
        function_timeout: the timeout of an existing function that is the processor, in seconds. NaN for others.
        stream: the source of an intake that reads a stream; empty for others.

    """
    if stream:
        yield WORKER_STREAM.problem(source=stream)
    if processing_timeout is not None and not 1 <= processing_timeout <= LONGEST:
        yield WORKER_PROCESSING_TIMEOUT.problem(value=span(processing_timeout), longest=span(LONGEST))
    if processing_timeout is not None and processing_timeout < (least := function_timeout + PROCESSOR_MARGIN):
        yield WORKER_FUNCTION.problem(
            value=span(processing_timeout), function=span(function_timeout), least=span(least)
        )
    least_tasks, most = tasks
    if least_tasks < 0 or most < max(least_tasks, 1):
        yield WORKER_TASKS.problem(least=least_tasks, most=most)
    if target_age < 60:
        yield WORKER_TARGET_AGE.problem(value=span(target_age))
