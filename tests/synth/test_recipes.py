"""The recipes, copied as they are."""

import io
import re
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_s3 as s3
from PIL import Image

from cdk_intake_ledger import IntakePipeline
from cdk_intake_ledger.testing import Fault, LocalPipeline
from tests.synth.build import (
    PROCESSORS,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    resources,
    statements,
    template_of,
)

PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
INTRODUCTION, *RECIPES = re.split("^## ", PAGE, flags=re.MULTILINE)
NAMES = [text.splitlines()[0] for text in RECIPES]
IN_A_STACK = NAMES[: NAMES.index("Snapshot tests")]


def snippets(text: str) -> str:
    return "\n".join(re.findall("^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def recipe(name: str) -> str:
    # A team's app runs in its own folder.
    return snippets(RECIPES[NAMES.index(name)]).replace('"processors/orders"', repr(str(PROCESSORS / "orders")))


class AnySnapshot:
    """A replacement of syrupy's fixture, which would write a file for the snippet."""

    def __call__(self, **_: Any) -> "AnySnapshot":
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict)

    __hash__ = object.__hash__


def test_every_recipe_is_run() -> None:
    """A new recipe needs a test here."""
    assert NAMES[len(IN_A_STACK) :] == [
        "Snapshot tests", "How a processor ends", "Reading an object", "An effect that happens once",
        "Rows in PostgreSQL", "A service over HTTP", "Rows in Iceberg",  # in test_output_recipes.py
        "Testing your processor",
    ]  # fmt: skip


@pytest.mark.parametrize("name", IN_A_STACK)
def test_a_recipe_synthesises(name: str) -> None:
    """Each recipe synthesises in a separate app, without a cycle."""
    app = new_app()
    stack, other = new_stack("Stack", app), new_stack("Other", app)
    names = {
        "self": stack,
        "bucket_of_another_stack": s3.Bucket(other, "Bucket", versioned=True),
        "teams": ["red", "green"],
    }
    exec(snippets(INTRODUCTION) + recipe(name), names)
    assert template_of(stack)["Resources"]


def test_the_snapshot_tests_of_the_recipes_pass() -> None:
    """The example tests, on a stack that they fit."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor())
    names: dict[str, Any] = {}
    exec(recipe("Snapshot tests"), names)
    names["test_the_template_has_not_changed"](stack, AnySnapshot())
    names["test_bucket_and_table_are_not_replaced"](stack)


def test_testing_your_processor() -> None:
    """The example tests, as they stand."""
    names: dict[str, Any] = {}
    exec(recipe("Testing your processor"), names)
    for name in ("test_every_invoice_counts_once", "test_chaos_changes_nothing", "test_several_threads_may_run_it"):
        names["saved"].clear()
        names[name]()


def test_how_a_processor_ends() -> None:
    """The example test, as it stands."""
    names: dict[str, Any] = {}
    exec(recipe("How a processor ends"), names)
    names["test_a_reason_is_kept_and_a_repaired_file_is_taken"]()


def test_reading_an_object() -> None:
    """The example test, as it stands."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", "1")
        archive.writestr("b.csv", "2")
    names: dict[str, Any] = {}
    exec(recipe("Reading an object"), names)
    names["test_a_cut_connection_is_tried_again"](file.getvalue())


@pytest.mark.failure_mode("F72")
@pytest.mark.parametrize("fault", [Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN])
def test_an_effect_that_happens_once(fault: Fault) -> None:
    """Each of the three ways, with a worker that dies after its effect, or wakes up behind its successor."""
    names: dict[str, Any] = {}
    exec(recipe("An effect that happens once"), names)

    def pipeline_of(name: str) -> LocalPipeline:
        pipeline = LocalPipeline(names[name])
        pipeline.put("a", "10\n20\n")
        pipeline.next(fault)
        pipeline.run()
        assert len(pipeline.calls) == 2
        return pipeline

    [written] = pipeline_of("booked_in_dynamodb").transacted
    assert written["Update"]["ExpressionAttributeValues"] == {":amount": {"N": "30"}}
    last = max(change.fence for change in pipeline_of("booked_in_sql").calls)
    with closing(names["database"]) as database:
        assert database.execute("SELECT * FROM totals").fetchall() == [("a", last, 30)]
    pipeline_of("sent_to_a_service")
    assert list(names["sent"].values()) == [30]


def test_a_partner_may_upload_and_nothing_else() -> None:
    """Cross-account uploads: the bucket's policy names the partner's role, and the keys."""
    stack = new_stack()
    exec(snippets(INTRODUCTION) + recipe("Cross-account uploads"), {"self": stack})
    policies = [
        resource for resource in template_of(stack)["Resources"].values() if resource["Type"] == "AWS::S3::BucketPolicy"
    ]
    allowed = [
        statement
        for policy in policies
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]
    assert [statement["Principal"] for statement in allowed] == [{"AWS": "arn:aws:iam::444455556666:role/Uploader"}]
    assert "/acme/*" in str(allowed[0]["Resource"])


def test_outputs_in_a_bucket() -> None:
    """The whole stack: the name in the environment, the permissions with the key, and the lifecycle rules."""
    stack = new_stack()
    exec(snippets(INTRODUCTION) + recipe("Outputs in a bucket"), {"self": stack})
    template = template_of(stack)
    (grey,) = resources(template, "AWS::S3::Bucket", "Grey")
    (key,) = resources(template, "AWS::KMS::Key", "GreyKey")
    function = only(template, "AWS::Lambda::Function", "PicturesConsumer")
    assert function["Environment"]["Variables"]["GREY_BUCKET"] == {"Ref": grey}
    allowed = {
        str(one["Resource"]): actions(one)
        for one in statements(template, "PicturesConsumer")
        if grey in str(one["Resource"]) or key in str(one["Resource"])
    }
    assert allowed == {
        str({"Fn::GetAtt": [grey, "Arn"]}): ["s3:ListBucket"],
        str({"Fn::Join": ["", [{"Fn::GetAtt": [grey, "Arn"]}, "/grey/*"]]}): [
            "s3:AbortMultipartUpload",
            "s3:GetObject",
            "s3:PutObject",
            "s3:PutObjectTagging",
        ],
        str({"Fn::GetAtt": [key, "Arn"]}): ["kms:Decrypt", "kms:GenerateDataKey"],
    }
    rules = only(template, "AWS::S3::Bucket", "Grey")["LifecycleConfiguration"]["Rules"]
    assert [rule["Prefix"] for rule in rules] == ["grey/", "grey/"]


def test_the_page_about_outputs() -> None:
    """Its section about S3: the processor, and the test of it."""
    page = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    code = snippets(page.split("\n## Objects in S3\n")[1].split("\n## ")[0])
    picture = io.BytesIO()
    Image.new("RGB", (2, 2), "red").save(picture, "PNG")

    def grey(content: bytes) -> bytes:
        made = io.BytesIO()
        Image.open(io.BytesIO(content)).convert("L").save(made, "PNG")
        return made.getvalue()

    def is_grey(content: bytes) -> bool:
        return Image.open(io.BytesIO(content)).mode == "L"

    names: dict[str, Any] = {"picture": picture.getvalue(), "grey": grey, "is_grey": is_grey}
    exec("from cdk_intake_ledger.testing import Fault, LocalPipeline\n" + code, names)
    names["pipeline"].delete("a.png")
    names["pipeline"].run()
    assert names["pipeline"].output("grey-pictures", "grey/a.png") is None


def test_our_metrics_stand_on_a_teams_dashboard() -> None:
    """Other monitoring: its graphs show our metrics, its alarm and ours are there, and so are our widgets."""
    stack = new_stack()
    exec(snippets(INTRODUCTION) + recipe("Other monitoring"), {"self": stack})
    resources = template_of(stack)["Resources"].values()
    (board,) = [resource for resource in resources if resource["Type"] == "AWS::CloudWatch::Dashboard"]
    shown = str(board["Properties"]["DashboardBody"])
    for name in ("Accepted", "Committed", "Failed", "Rejected", "ApproximateAgeOfOldestMessage", "AuditRuns"):
        assert f'"IntakeLedger","{name}"' in shown or f'"AWS/SQS","{name}"' in shown, name
    alarms = str([resource["Properties"] for resource in resources if resource["Type"] == "AWS::CloudWatch::Alarm"])
    assert all(f"'MetricName': '{name}'" in alarms for name in ("Errors", "Rejected", "AuditFindings"))
