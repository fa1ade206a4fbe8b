"""The example of long work with short times, and a consumer that dies between claims and the start of executions."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from examples.long_work.stack import SHORT, WordsStack

from tests.unchecked import unchecked

STACK = "Long"
DYING = '''
import os
from pathlib import Path
from botocore.client import BaseClient
from intake_ledger.consumer import handler

call = BaseClient._make_api_call


def dying(client, operation, arguments):
    """End the process before the first execution of a key with this word. Its batch is claimed by then."""
    if operation == "StartExecution" and "dies" in arguments["input"]:
        died = Path({folder!r}, "died")
        if not died.exists():
            died.touch()
            os._exit(1)
    return call(client, operation, arguments)


BaseClient._make_api_call = dying
'''


class LongStack(WordsStack):
    """The example's stack. `code` is a folder that the functions on this machine can write."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id, work=cdk.Duration.seconds(2), **SHORT)
        # The messages of a worker that died come back when its lease ends.
        [queue] = [one for one in self.node.find_all() if one.node.path.endswith("/Queue/Messages/Resource")]
        unchecked(self.pipeline)
        queue.add_property_override("VisibilityTimeout", 20)  # type: ignore[attr-defined] # a CfnQueue
        consumer = self.pipeline.function.node.default_child
        assert isinstance(consumer, lambda_.CfnFunction)
        consumer.add_property_override("Code.ZipFile", DYING.replace("{folder!r}", repr(str(code))))
        [rule] = [one for one in self.node.find_all() if one.node.path.endswith("/Ended")]
        cdk.CfnOutput(self, "RuleName", value=rule.ref)  # type: ignore[attr-defined] # a CfnRule
