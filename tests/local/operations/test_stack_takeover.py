"""A pipeline that Terraform or SAM made is taken over as docs/recipes.md says, on the local AWS."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.support import TIMEOUT

ROOT = Path(__file__).resolve().parents[3]
APP = """
from aws_cdk import App, CfnOutput, RemovalPolicy, RemovalPolicies, Stack
{imports}

class TakingOver(Stack):
    def __init__(self, scope, id):
        super().__init__(scope, id)
{recipe}
        CfnOutput(self, "Table", value=self.node.find_child("Billing").table.table_name)
        CfnOutput(self, "Audit", value=self.node.find_child("Billing").audit_function.function_name)
        RemovalPolicies.of(self).destroy()

app = App(builtin_cloud_formation_validation=False)
TakingOver(app, "TakingOver")
app.synth()
"""
EVENTS = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed"]


class Old:
    """The bucket, queues and notification of a Terraform pipeline, and the work of its old function."""

    def __init__(self, aws: LocalAws) -> None:
        self.s3, self.sqs = aws.client("s3"), aws.client("sqs")
        self.s3.create_bucket(Bucket="billing-inbox")
        versioning: Any = {"Status": "Enabled"}
        self.s3.put_bucket_versioning(Bucket="billing-inbox", VersioningConfiguration=versioning)
        dead = {"MessageRetentionPeriod": str(14 * 86_400)}
        self.sqs.create_queue(QueueName="billing-dead-letters", Attributes=dead)
        redrive = {"deadLetterTargetArn": arn(aws, "billing-dead-letters"), "maxReceiveCount": 300}
        # S3 on AWS sets no notification to a queue that it may not send to.
        permission = {
            "Effect": "Allow",
            "Principal": {"Service": "s3.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn(aws, "billing"),
            "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::billing-inbox"}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [permission]})
        attributes = {"VisibilityTimeout": "1200", "RedrivePolicy": json.dumps(redrive), "Policy": policy}
        self.url = self.sqs.create_queue(QueueName="billing", Attributes=attributes)["QueueUrl"]
        wanted: Any = {"QueueConfigurations": [{"QueueArn": arn(aws, "billing"), "Events": EVENTS}]}
        self.s3.put_bucket_notification_configuration(Bucket="billing-inbox", NotificationConfiguration=wanted)

    def upload(self, key: str) -> None:
        self.s3.put_object(Bucket="billing-inbox", Key=key, Body=b"10")

    def process_one(self) -> list[str]:
        """One message, as its function would; returns the keys it was about."""
        answer = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=1)
        for message in answer.get("Messages", []):
            self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
            return [one["s3"]["object"]["key"] for one in json.loads(message["Body"]).get("Records", [])]
        return []


def arn(aws: LocalAws, name: str) -> str:
    return f"arn:aws:sqs:{aws.region}:{aws.account}:{name}"


def snippets(heading: str, page: str) -> str:
    section = re.split("^## ", page, flags=re.MULTILINE)
    [text] = [one for one in section if one.startswith(heading)]
    return "\n".join(re.findall("^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def app(aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe's snippet in a stack, with this AWS's account and region."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    recipe = snippets("From a Terraform or SAM pipeline", page)
    recipe = recipe.replace("eu-central-1:111122223333", f"{aws.region}:{aws.account}")
    recipe = recipe.replace('"processors/orders"', repr(str(ROOT / "tests" / "synth" / "processors" / "orders")))
    path = tmp_path_factory.mktemp("taking-over") / "taking_over.py"
    imports = snippets("", page.split("\n## ")[0])
    indented = "".join(f"        {line}\n" for line in recipe.splitlines())
    path.write_text(APP.format(imports=imports, recipe=indented))
    return path


def test_what_waits_in_the_queue_is_what_is_processed(aws: LocalAws, app: Path) -> None:
    """The old function's results stay. Each message that it left, and each later one, is processed once."""
    old = Old(aws)
    old.upload("done-before")
    aws.wait_until(lambda: "done-before" in old.process_one(), "the old function has processed one", timeout=TIMEOUT)
    old.upload("waits")  # the old function has stopped and does not receive this message
    stack = aws.deploy(f"{sys.executable} {app}", cwd=ROOT)["TakingOver"]
    old.upload("comes-later")

    def settled() -> dict[str, str]:
        rows = aws.client("dynamodb").scan(TableName=stack["Table"], ConsistentRead=True)["Items"]
        return {row["pk"]["S"]: row["attempts"]["N"] for row in rows if row.get("status", {}).get("S") == "PROCESSED"}

    aws.wait_until(lambda: len(settled()) == 2, "both are settled", timeout=TIMEOUT)
    assert settled() == {"billing-inbox/waits": "1", "billing-inbox/comes-later": "1"}

    # Terraform's notification is as it was, and the audit finds nothing to say about it.
    kept = old.s3.get_bucket_notification_configuration(Bucket="billing-inbox")["QueueConfigurations"]
    assert [one["Events"] for one in kept] == [EVENTS]
    answer = aws.client("lambda").invoke(FunctionName=stack["Audit"], Payload=b'{"dryRun": true}')
    report = json.load(answer["Payload"])
    assert not report["delivery"], report
    assert not any(report["counts"].values()), report
