"""The requests to a local AWS and to an account that tests have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from intake_ledger_testing.function_logs import json_objects, read_lines, sum_metrics

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path


class AwsEnvironment(ABC):
    """An AWS on which tests deploy: `LocalAws`, or `AccountAws`."""

    region: str
    """The region of all clients and deployments."""
    account: str
    """The account of all clients and deployments."""
    prefix = ""
    """The beginning of the names of all stacks. It is empty for a local AWS, which serves one run only."""

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """True if the endpoint is not AWS."""

    @abstractmethod
    def client(self, service: str) -> Any:
        """Return the boto3 client of a service, which is created once.

        Args:
            service: the name that boto3 uses, such as `s3`.

        """

    @abstractmethod
    def deploy(self, app: str, *, cwd: Path | None = None) -> dict[str, dict[str, str]]:
        """Deploy the stacks of an app, and return their outputs by stack name.

        Args:
            app: the command that synthesizes, as in `cdk --app`.
            cwd: its working directory; the current directory when omitted.

        """

    def wait_until[T](
        self, condition: Callable[[], T], what: str, *, timeout: float = 60.0, interval: float = 0.1
    ) -> T:
        """Call a condition repeatedly until its result is true, and return the result.

        Args:
            condition: a function without arguments.
            what: a description of the condition for the error, such as "the object is processed".
            timeout: in seconds; 60 when omitted.
            interval: seconds between two calls; 0.1 when omitted.

        Raises:
            TimeoutError: The condition was not true in time. The message has the description.

        """
        deadline = time.monotonic() + timeout
        while True:
            if result := condition():
                return result
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout:.0f} s still waiting until {what}")
            time.sleep(interval)

    def physical_id(self, stack: str, logical_id: str) -> str | None:
        """Return the physical ID of a resource, or None if the stack or the resource is not deployed.

        Args:
            stack: the stack's name.
            logical_id: of the resource in the template.

        """
        cloudformation = self.client("cloudformation")
        try:
            answer = cloudformation.describe_stack_resources(StackName=stack, LogicalResourceId=logical_id)
        except cloudformation.exceptions.ClientError:
            return None
        return next((str(found["PhysicalResourceId"]) for found in answer["StackResources"]), None)

    def logs(self, function: str) -> list[str]:
        """Return all lines of a function's log group, oldest first.

        An invocation's lines are there when it has ended: when its messages are deleted from the queue, for example. On
        an account they follow some seconds later.

        Args:
            function: its name.

        """
        return read_lines(self.client("lambda"), self.client("logs"), function)

    def records(self, function: str) -> list[dict[str, Any]]:
        """Return the structured lines of a function's log: JSON objects without metrics (EMF).

        Args:
            function: its name.

        """
        return [record for record in json_objects(self.logs(function)) if "_aws" not in record]

    def metrics(self, function: str) -> Counter[str]:
        """Return the sums of all metrics that a function wrote in embedded metric format, by metric name.

        Args:
            function: its name.

        """
        return sum_metrics(self.logs(function))
