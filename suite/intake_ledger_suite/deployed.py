"""A deployed stack as the tests see it: names, orders, effects and waits."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from io import StringIO
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from intake_ledger_cli import commands
from intake_ledger_testing.aws_environment import AwsEnvironment

Order = Mapping[str, object]
"""The body of an object: see functions/checked.py."""
_TERMINATED = 143
_COMMAND = "import sys; from intake_ledger_cli import commands; sys.exit(commands.run())"


class Deployed:
    """A deployed stack."""

    def __init__(self, aws: AwsEnvironment, stack: str, outputs: Mapping[str, str]) -> None:
        self.aws, self.stack = aws, stack
        self.out = {name.removeprefix("Out"): value for name, value in outputs.items()}
        """The outputs of the stack. For a pipeline `Plain`: `PlainBucket`, `PlainQueue`, `PlainDeadLetters`."""
        self.stopping = Event()
        """Set at the end. Each pause ends then."""
        self._token = uuid4().hex[:8]

    def key(self, key: str) -> str:
        """Return a key that no earlier run on a kept stack has used. `in/a.txt` becomes `in/0a1b2c3d/a.txt`."""
        head, _, tail = key.rpartition("/")
        return "/".join(filter(None, (head, self._token, tail)))

    def put(self, pipeline: str, key: str, order: Order | None = None) -> str:
        """Upload an order, and return its version. `key` is as for `key()`, also in the other methods."""
        answer = self.aws.client("s3").put_object(
            Bucket=self.out[f"{pipeline}Bucket"], Key=self.key(key), Body=json.dumps(order or {})
        )
        return str(answer["VersionId"])

    def remove(self, pipeline: str, key: str) -> str:
        """Delete an object, and return the version of the marker."""
        answer = self.aws.client("s3").delete_object(Bucket=self.out[f"{pipeline}Bucket"], Key=self.key(key))
        return str(answer["VersionId"])

    def items(self, place: str) -> list[dict[str, Any]]:
        """Return the items of a place in the table of effects."""
        pages = (
            self.aws.client("dynamodb")
            .get_paginator("query")
            .paginate(
                TableName=self.out["Effects"],
                KeyConditionExpression="place = :place",
                ExpressionAttributeValues={":place": {"S": place}},
                ConsistentRead=True,
            )
        )
        return [item for page in pages for item in page["Items"]]

    def calls(self, place: str) -> dict[str, int]:
        """Return the number of effects by version or identity."""
        return {one["id"]["S"]: int(one.get("calls", {"N": "0"})["N"]) for one in self.items(place)}

    def place(self, pipeline: str, key: str) -> str:
        """Return the place of the effects of an object."""
        return f"{self.out[f'{pipeline}Bucket']}/{self.key(key)}"

    def object_calls(self, pipeline: str, key: str) -> dict[str, int]:
        """Return the number of effects by version of an object."""
        return self.calls(self.place(pipeline, key))

    def once(self, place: str, id_: str, *, seconds: float = 300) -> None:
        """Wait for an effect, and fail if there are several."""
        number = self.until(lambda: self.calls(place).get(id_, 0), f"{place} has an effect of {id_}", seconds=seconds)
        assert number == 1, f"{place} has {number} effects of {id_}"

    def object_once(self, pipeline: str, key: str, version: str, *, seconds: float = 300) -> None:
        """Wait for the effect of a version, and fail if there are several."""
        self.once(self.place(pipeline, key), version, seconds=seconds)

    def until[T](self, condition: Callable[[], T], what: str, *, seconds: float = 300) -> T:
        """Call a condition until its result is true, and return the result. Fail with `what` if it is not in time."""
        waited = 0.0
        interval = 0.2 if self.aws.is_local else 2.0
        while True:
            if result := condition():
                return result
            if waited > seconds:
                pytest.fail(f"after {seconds:.0f} s not: {what}")
            self.pause(interval)
            waited += interval

    def pause(self, seconds: float) -> None:
        """Wait, at most until the end of the tests."""
        if self.stopping.wait(seconds):
            pytest.skip("the run was interrupted")

    def arn_of(self, queue: str) -> str:
        """Return the ARN of a queue."""
        answer = self.aws.client("sqs").get_queue_attributes(QueueUrl=self.out[queue], AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def drained(self, *queues: str, seconds: float = 300) -> None:
        """Wait until queues have no message."""
        self.until(
            lambda: not sum(sum(self.depth(queue)) for queue in queues),
            f"{' and '.join(queues)} have no message",
            seconds=seconds,
        )

    def depth(self, queue: str) -> tuple[int, int, int]:
        """Return the approximate numbers of messages of a queue: visible, in flight and delayed."""
        answer = self.aws.client("sqs").get_queue_attributes(QueueUrl=self.out[queue], AttributeNames=["All"])
        found = answer["Attributes"]
        visible, hidden, delayed = (
            int(found.get(f"ApproximateNumberOfMessages{end}", "0")) for end in ("", "NotVisible", "Delayed")
        )
        return visible, hidden, delayed

    def command(self, pipeline: str, *arguments: str) -> Any:
        """Run the command `intake-ledger`, and return its document."""
        with redirect_stdout(StringIO()) as printed:
            code = commands.run(self._arguments(pipeline, *arguments))
        if code == _TERMINATED:
            # The command has its own handler.
            pytest.exit("SIGTERM", returncode=code)
        assert code == 0, (arguments, code)
        return json.loads(printed.getvalue())

    def command_as(self, role: str, pipeline: str, *arguments: str) -> Any:
        """Run the command with the credentials of a role. Return its document, or None if it fails."""
        found = self.aws.client("sts").assume_role(RoleArn=role, RoleSessionName="suite")["Credentials"]
        credentials = {
            "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
            "AWS_SESSION_TOKEN": found["SessionToken"],
            "AWS_DEFAULT_REGION": self.aws.region,
        }
        environment = {name: value for name, value in os.environ.items() if name != "AWS_PROFILE"} | credentials
        command = [sys.executable, "-c", _COMMAND, *self._arguments(pipeline, *arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def _arguments(self, pipeline: str, *arguments: str) -> list[str]:
        return [*arguments, "--stack", self.stack, "--pipeline", pipeline, "--json"]
