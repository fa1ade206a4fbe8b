"""A pipeline without an app of the CDK: the template of `intake-ledger template`, deployed by plain CloudFormation."""

import io
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Typed
from tests.local.support import TIMEOUT

STACK, CODE, ROLE = "Invoices", "code-of-the-team", "Bookkeeper"
BOOK = 'def handler(change, context):\n    return {"commit": change["key"] + " at attempt " + str(change["attempt"])}\n'


def function_of_the_team(aws: LocalAws) -> str:
    """A processor that was there before. Return its ARN."""
    trust = {
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]
    }
    role = aws.client("iam").create_role(RoleName=ROLE, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("book.py", BOOK)
    made = aws.client("lambda").create_function(
        FunctionName="book",
        Runtime="python3.13",
        Handler="book.handler",
        Role=role,
        Code={"ZipFile": content.getvalue()},
        Timeout=5,
    )
    return str(made["FunctionArn"])


def carry_out(aws: LocalAws, line: str) -> None:
    """Act like a printed command of the AWS CLI."""
    match shlex.split(line):
        case ["aws", "s3", "cp", source, target]:
            bucket, _, key = target.removeprefix("s3://").partition("/")
            aws.client("s3").put_object(Bucket=bucket, Key=key, Body=Path(source).read_bytes())
        case ["aws", "cloudformation", "deploy", *arguments]:
            where = arguments.index("--parameter-overrides")
            options = dict(zip(arguments[:where:2], arguments[1:where:2], strict=True))
            pairs = (argument.partition("=") for argument in arguments[where + 1 :])
            cloudformation = aws.client("cloudformation")
            cloudformation.create_stack(
                StackName=options["--stack-name"],
                TemplateBody=Path(options["--template-file"]).read_text(),
                Capabilities=[options["--capabilities"]],
                Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, _, value in pairs],
            )
            cloudformation.get_waiter("stack_create_complete").wait(
                StackName=options["--stack-name"], WaiterConfig={"Delay": 1, "MaxAttempts": 240}
            )
        case _:
            raise AssertionError(line)


def test_the_printed_commands_deploy_a_pipeline_that_works(aws: LocalAws, tmp_path: Path, typed: Typed) -> None:
    """The lines are carried out as they are, after the name of the role is filled in. An object below the prefix is
    committed with the answer of the function, and an object elsewhere is not processed.
    """
    aws.client("s3").create_bucket(Bucket=CODE)
    arn = function_of_the_team(aws)
    printed = typed(
        "template", "--name", STACK, "--processor-arn", arn, "--prefix", "in/", "--code-bucket", CODE,
        "--to", str(tmp_path / "intake"),
    )  # fmt: skip
    *deploying, status = printed.replace("PROCESSOR_ROLE_NAME", ROLE).splitlines()
    for line in deploying:
        carry_out(aws, line)
    [stack] = aws.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"]
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}

    s3 = aws.client("s3")
    s3.put_object(Bucket=outputs["BucketName"], Key="elsewhere/a.csv", Body=b"1 EUR")
    s3.put_object(Bucket=outputs["BucketName"], Key="in/a.csv", Body=b"1 EUR")

    def committed() -> dict[str, Any]:
        items = aws.client("dynamodb").scan(TableName=outputs["LedgerTableName"], ConsistentRead=True)["Items"]
        return {one["pk"]["S"]: one["commit_id"]["S"] for one in items if "commit_id" in one}

    aws.wait_until(committed, "the object is committed", timeout=TIMEOUT)
    assert committed() == {f"{outputs['BucketName']}/in/a.csv": "in/a.csv at attempt 1"}

    [policy] = aws.client("iam").list_role_policies(RoleName=ROLE)["PolicyNames"]
    assert policy == f"{STACK}-read-objects"
    shown = json.loads(typed(*shlex.split(status)[1:], "--json"))
    assert shown["pipeline"] == STACK
