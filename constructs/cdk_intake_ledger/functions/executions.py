"""Executions that do the work of a consumer and outlive its function: the parts that each place of them has."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.functions.remote_function import WorkElsewhere
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.queue import IntakeQueue

_YEAR = 366 * 86_400


@dataclass(frozen=True, kw_only=True)
class Executions(WorkElsewhere, ABC):
    """The place of the executions, and their times."""

    timeout: Duration
    """The limit of an execution."""
    stop_overtaken: bool = False
    """Stop an execution when a newer version of its object is to be processed."""

    @property
    @abstractmethod
    def longest_task(self) -> Duration:
        """The time for which a part of an execution may run on after the execution was stopped or timed out."""

    @property
    def retention(self) -> Duration | None:
        """The time for which AWS keeps an execution that has ended. None if synthesis need not compare it."""
        return None

    @property
    def longest_seconds(self) -> int:
        """The longest time until no part of an execution runs any more, in seconds."""
        times = [to_seconds(duration) for duration in (self.timeout, self.longest_task)]
        # A token is a negative number. AWS ends an execution after a year.
        return math.ceil(sum(seconds if seconds >= 0 else _YEAR for seconds in times))

    @abstractmethod
    def problems(self, scope: Construct) -> Iterator[Problem]:
        """Compare the place with the construct that starts executions there. It may warn.

        Args:
            scope: the pipeline, the intake of messages or the sets.

        """

    @abstractmethod
    def allow_looking(self, scope: Construct, role: iam.Role) -> None:
        """Allow a role to describe executions.

        Args:
            scope: a construct of the stack.
            role: of the consumer or of the audit.

        """

    @abstractmethod
    def send_ends(self, scope: Construct, queue: IntakeQueue, name: str) -> None:
        """Send the ends of executions to a queue, if their events name the row. They wake the consumer, which asks for
        the outcome itself.

        Args:
            scope: the consumer.
            queue: its queue, which takes objects or sets. An intake of messages gets no such events: its message stays
                in the queue, and asks.
            name: the name of the pipeline or of the sets.

        """
