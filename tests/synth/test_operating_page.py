"""The role that the page of the command line describes."""

import re
from pathlib import Path

from aws_cdk import aws_iam as iam

from cdk_intake_ledger import IntakePipeline
from tests.cli_actions import NEEDED
from tests.synth.build import actions, new_stack, processor, resources, statements, template_of

PAGE = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()


def test_the_role_of_the_page_may_do_what_each_command_does() -> None:
    """It may write only messages, records of operations, log lines and dismissals, and call the audit."""
    stack = new_stack()
    [snippet] = re.findall("^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(snippet, {"self": stack, "iam": iam, "invoices": IntakePipeline(stack, "Invoices", processor=processor())})
    allowed = {action for statement in statements(template_of(stack), "Operator") for action in actions(statement)}
    assert allowed >= {action for needed in NEEDED.values() for action in needed}
    reading = re.compile(":(BatchGet|Describe|Get|List|Query|Receive|Scan)")
    assert {action for action in allowed if not reading.search(action)} == {
        "dynamodb:DeleteItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "lambda:InvokeFunction",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "sqs:ChangeMessageVisibility",
        "sqs:DeleteMessage",
        "sqs:SendMessage",
    }


def test_the_status_of_the_page_has_as_many_alarms_as_a_pipeline() -> None:
    """Each of them has a dimension by which `status` knows it: the pipeline, a queue or a function."""
    stack = new_stack()
    IntakePipeline(stack, "Invoices", processor=processor())
    alarms = resources(template_of(stack), "AWS::CloudWatch::Alarm").values()
    assert f"1 of {len(alarms)} in ALARM" in PAGE
    assert all("Dimensions" in str(one) for one in alarms)
