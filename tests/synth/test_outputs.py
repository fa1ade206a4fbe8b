"""`grant_output`: permissions, lifecycle rules, and refusals of prefixes that would loop or overlap."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import FileSets, IntakePipeline, Processor, SetForm
from intake_ledger import Output, OutputError
from intake_ledger.delivery_check import lifecycle
from intake_ledger.outputs.conditional_put import source_of
from intake_ledger.outputs.output import TOMBSTONE_TAG
from intake_ledger_testing.memory_outputs import MemoryOutputs
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    rules_in,
    statements,
    template_of,
    warned,
    warnings,
)

LIFECYCLE = [
    {
        "ExpirationInDays": 1,
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        "Status": "Enabled",
        "TagFilters": [{"Key": "intake-tombstone", "Value": "1"}],
    },
    {
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        "ExpiredObjectDeleteMarker": True,
        "Status": "Enabled",
    },
]
"""The rules in CloudFormation's form, without the prefix."""


def pipeline_of(scope: Stack, id: str = "Orders", *, prefix: str | None = "in/", **options: Any) -> IntakePipeline:
    filters = None if prefix is None else [s3.NotificationKeyFilter(prefix=prefix)]
    return IntakePipeline(scope, id, **({"processor": processor(), "filters": filters} | options))


def found(app: App) -> list[str]:
    """The IDs of the rules that the validation of the app names."""
    try:
        app.synth(force=True)
    except RuntimeError as error:
        return rules_in(str(error))
    return []


@pytest.fixture(scope="module")
def stack() -> Stack:
    """A pipeline with outputs in its own bucket, in another one of the stack, and in an imported bucket."""
    stack = new_stack()
    pipeline = pipeline_of(stack)
    pictures = s3.Bucket(stack, "Pictures", versioned=True, encryption_key=kms.Key(stack, "Key"))
    for _ in range(2):
        assert pipeline.grant_output(pictures, "grey/").success
    pipeline.grant_output(pipeline.bucket, "out$/")
    pipeline.grant_output(s3.Bucket.from_bucket_name(stack, "Theirs", "theirs"), "")
    template_of(stack)
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return template_of(stack)


def written(template: Json) -> list[Json]:
    return [one for one in statements(template, "OrdersConsumer") if "s3:PutObject" in actions(one)]


@pytest.mark.failure_mode("F227")
@pytest.mark.parametrize(("prefix", "rule"), [("grey/*", "key-asterisk"), ("s3://pictures/grey/", "key-is-uri")])
def test_a_prefix_that_no_output_has_is_refused(prefix: str, rule: str) -> None:
    """The processor would be refused by S3 at each output."""
    stack = new_stack()
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    with refused(rule):
        pipeline.grant_output(pipeline.bucket, prefix)


def test_the_processor_may_write_its_prefixes_and_nothing_else(template: Json) -> None:
    """One statement for each prefix, also if it is granted twice. An asterisk in a prefix is no wildcard."""
    (pictures,) = resources(template, "AWS::S3::Bucket", "Pictures")
    (own,) = resources(template, "AWS::S3::Bucket", "Orders")
    assert {one["Sid"]: one["Resource"]["Fn::Join"][1][-2:] for one in written(template)} == {
        "OutputsOfTheProcessor": [{"Fn::GetAtt": [pictures, "Arn"]}, "/grey/*"],
        "OutputsOfTheProcessor2": [{"Fn::GetAtt": [own, "Arn"]}, "/out${$}/*"],
        "OutputsOfTheProcessor3": [{"Ref": "AWS::Partition"}, ":s3:::theirs/*"],
    }
    for one in written(template):
        assert actions(one) == ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject", "s3:PutObjectTagging"]
    assert not any("s3:PutObject" in actions(one) for one in statements(template, "OrdersAudit"))


@pytest.mark.failure_mode("F45")
def test_the_processor_of_sets_may_write_outputs_too() -> None:
    """`FileSet.output` had no grant. A prefix of the parts is refused, as for another pipeline."""
    app = new_app()
    stack = new_stack(app=app)
    pipeline = pipeline_of(stack)
    sets = FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.marker("in/*/_OK"), processor=processor())
    sets.grant_output(sets.bucket, "sums/")
    [one] = [one for one in statements(template_of(stack), "LoadsConsumer") if "s3:PutObject" in actions(one)]
    assert one["Resource"]["Fn::Join"][1][-1] == "/sums/*"
    sets.grant_output(sets.bucket, "in/sums/")
    assert found(app) == ["output-in-other-intake"]


def test_a_missing_output_is_not_a_forbidden_one(template: Json) -> None:
    """S3 answers 404 for a new output only to a caller that may list its bucket."""
    listed = [one["Resource"] for one in statements(template, "OrdersConsumer") if "s3:ListBucket" in actions(one)]
    for bucket in [{"Fn::GetAtt": [name, "Arn"]} for name in resources(template, "AWS::S3::Bucket")]:
        assert bucket in listed
    assert any(":s3:::theirs" in str(resource) for resource in listed)


def test_the_processor_may_use_the_key_of_the_outputs(template: Json) -> None:
    """A multipart upload decrypts its parts."""
    (key,) = resources(template, "AWS::KMS::Key")
    (using,) = [one for one in statements(template, "OrdersConsumer") if "kms:GenerateDataKey" in actions(one)]
    assert actions(using) == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert using["Resource"] == {"Fn::GetAtt": [key, "Arn"]}


@pytest.mark.parametrize(("path", "prefix", "others"), [("Pictures", "grey/", 0), ("Orders", "out$/", 1)])
def test_tombstones_and_unfinished_uploads_expire(template: Json, path: str, prefix: str, others: int) -> None:
    """With versions: a delete marker, then no tombstone, then no marker. Other outputs stay."""
    rules = only(template, "AWS::S3::Bucket", path)["LifecycleConfiguration"]["Rules"]
    assert rules[others:] == [rule | {"Prefix": prefix} for rule in LIFECYCLE]


def test_the_owner_of_an_imported_bucket_is_given_the_same_rules(stack: Stack) -> None:
    """In the form of `put-bucket-lifecycle-configuration`."""
    (text,) = warned(stack, "output-lifecycle-unknown")
    tombstones, uploads = json.loads(text[text.index("[{") : text.rindex("}]") + 2])
    selected = tombstones.pop("Filter")["And"]
    assert selected == {"Prefix": "", "Tags": LIFECYCLE[0]["TagFilters"]}
    assert tombstones.pop("Expiration") == {"Days": LIFECYCLE[0]["ExpirationInDays"]}
    assert tombstones.items() <= LIFECYCLE[0].items()
    assert uploads.pop("Filter") == {"Prefix": ""}
    assert uploads.pop("Expiration") == {"ExpiredObjectDeleteMarker": True}
    assert uploads.items() <= LIFECYCLE[1].items()
    assert len(warnings(stack)) == 1


@pytest.mark.failure_mode("F71")
@pytest.mark.parametrize(
    ("intake", "output", "loops"),
    [
        ("in/", "in/", True),
        ("in/", "in/done/", True),
        ("in/", "i", True),
        ("in/", "", True),
        (None, "out/", True),
        ("in/", "out/in/", False),
        ("in/", "in2/", False),
    ],
)
def test_outputs_where_the_pipeline_reads_are_refused(intake: str | None, output: str, loops: bool) -> None:
    """Inside the prefix, equal to it, or around it. It is one problem, not two."""
    app = new_app()
    pipeline = pipeline_of(new_stack(app=app), prefix=intake)
    pipeline.grant_output(pipeline.bucket, output)
    assert found(app) == (["output-calls-itself"] if loops else [])


@pytest.mark.failure_mode("F71")
def test_a_loop_ends_the_synthesis() -> None:
    """With the bucket, both prefixes, and the fix."""
    stack = new_stack()
    pipeline = pipeline_of(stack)
    pipeline.grant_output(pipeline.bucket, "in/grey/")
    text = r"outputs in Stack/Orders/Bucket have the prefix 'in/grey/', and it processes the prefix 'in/'"
    with refused("output-calls-itself", text):
        template_of(stack)


@pytest.mark.failure_mode("F71")
@pytest.mark.parametrize("output_first", [True, False])
def test_outputs_where_another_pipeline_reads_are_refused(output_first: bool) -> None:
    """In any order of construction. The other pipeline could not tell a tombstone from an upload."""
    app = new_app()
    host, stack = new_stack("Host", app), new_stack("Stack", app)
    shared = s3.Bucket(host, "Shared", versioned=True)
    pictures = pipeline_of(stack, "Pictures")
    steps: list[Callable[[], object]] = [
        lambda: pictures.grant_output(shared, "grey/"),
        lambda: pipeline_of(host, "Grey", prefix="grey/", bucket=shared),
    ]
    for step in steps if output_first else reversed(steps):
        step()
    assert found(app) == ["output-in-other-intake"]


@pytest.mark.parametrize(
    ("one", "other", "problems"), [("a/", "a/", 2), ("a/", "a/b/", 2), ("", "b", 2), ("a/", "b/", 0)]
)
def test_outputs_of_two_pipelines_must_not_overlap(one: str, other: str, problems: int) -> None:
    """Their fences cannot be compared. Each of the two pipelines has the problem."""
    app = new_app()
    first, second = new_stack("First", app), new_stack("Second", app)
    pictures = s3.Bucket(first, "Pictures")
    pipeline_of(first).grant_output(pictures, one)
    pipeline_of(second).grant_output(pictures, other)
    assert found(app) == ["outputs-overlap"] * problems


def test_one_pipeline_may_write_overlapping_prefixes() -> None:
    """One processor has one fence for each object."""
    app = new_app()
    stack = new_stack(app=app)
    pipeline, pictures = pipeline_of(stack), s3.Bucket(stack, "Pictures")
    for prefix in ("grey/", "grey/small/", "in/"):
        pipeline.grant_output(pictures, prefix)
    assert found(app) == []


def by_name(stack: Stack, bucket: s3.Bucket) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(stack, "ByName", "pictures")


def by_reference(stack: Stack, bucket: s3.Bucket) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(stack, "ByReference", bucket.bucket_name)


def by_arn(stack: Stack, bucket: s3.Bucket) -> s3.IBucket:
    return s3.Bucket.from_bucket_arn(stack, "ByArn", "arn:aws:s3:::pictures")


@pytest.mark.parametrize(
    ("reference", "name"),
    [(by_name, "pictures"), (by_arn, "pictures"), (by_reference, None), (by_reference, "pictures")],
)
def test_a_bucket_is_recognised_in_another_form(
    reference: Callable[[Stack, s3.Bucket], s3.IBucket], name: str | None
) -> None:
    """One stack makes the bucket, and the other one imports it."""
    app = new_app()
    first, second = new_stack("First", app), new_stack("Second", app)
    pictures = s3.Bucket(first, "Pictures", bucket_name=name)
    pipeline_of(first).grant_output(pictures, "grey/")
    pipeline_of(second).grant_output(reference(second, pictures), "grey/")
    assert found(app) == ["outputs-overlap"] * 2


def test_a_prefix_that_comes_with_the_deployment_passes_through() -> None:
    """It cannot be compared."""
    stack = new_stack()
    pipeline = pipeline_of(stack)
    pipeline.grant_output(pipeline.bucket, f"{stack.account}/")
    prefix = {"Fn::Join": ["", [{"Ref": "AWS::AccountId"}, "/"]]}
    template = template_of(stack)
    rules = only(template, "AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    assert [rule.get("Prefix") for rule in rules] == [None, prefix, prefix]
    (statement,) = written(template)
    assert {"Ref": "AWS::AccountId"} in statement["Resource"]["Fn::Join"][1]


def test_an_existing_function_writes_with_its_own_role() -> None:
    """The pipeline's role would get a permission that it never uses."""
    stack = new_stack()
    function = lambda_.Function.from_function_name(stack, "Fn", "grey")
    pipeline = pipeline_of(stack, processor=Processor.from_function(function))
    with refused("output-elsewhere", "Stack/Fn: it writes with its own role"):
        pipeline.grant_output(pipeline.bucket, "out/")


def test_a_bucket_of_another_account_needs_a_policy_there() -> None:
    """S3 asks both accounts."""
    stack = new_stack(env=Environment(account="111122223333", region="eu-central-1"))
    pipeline = pipeline_of(stack)
    theirs = s3.Bucket.from_bucket_attributes(stack, "Theirs", bucket_name="theirs", account="444455556666")
    pipeline.grant_output(theirs, "grey/")
    (text,) = warned(stack, "output-bucket-policy")
    assert "is in account 444455556666, and the pipeline is in account 111122223333" in text
    for part in (":iam::111122223333:root", ":s3:::theirs/grey/*", "s3:ListBucket", "s3:PutObjectTagging"):
        assert part in text


class Asked(MemoryOutputs):
    """Keeps the actions that S3 requires for each request."""

    def __init__(self) -> None:
        super().__init__()
        self.actions: set[str] = set()

    def put_object(self, **request: Any) -> dict[str, Any]:
        self.actions |= {"s3:PutObjectTagging"} if "Tagging" in request else set()
        return super().put_object(**request)

    def needed(self) -> set[str]:
        return self.actions.union(*(NEEDED[operation] for operation in self.requests))


NEEDED = {
    "AbortMultipartUpload": {"s3:AbortMultipartUpload"},
    "CompleteMultipartUpload": {"s3:PutObject"},
    "CreateMultipartUpload": {"s3:PutObject"},
    # Without ListBucket, S3 answers 403 for an object that does not exist.
    "HeadObject": {"s3:GetObject", "s3:ListBucket"},
    "PutObject": {"s3:PutObject"},
    "UploadPart": {"s3:PutObject"},
}
"""Actions by operation, as the page "Required permissions for Amazon S3 API operations" lists them."""


def test_the_grant_is_what_outputs_request(template: Json) -> None:
    """Each action that an output needs is granted, and each granted action is needed."""
    s3 = Asked()

    def output(fence: int) -> Output:
        return Output(
            cast("Any", s3), "b", "grey/a", fence=fence, source=source_of("a", None), look_first=True, part_bytes=64
        )

    output(10**12).put(b"1000000000000")
    output(10**12 + 1).put(b"1000000000001".ljust(200))
    with pytest.raises(OutputError):
        output(10**12 + 2).put(b"no fence".ljust(200))
    output(10**12 + 3).remove()
    assert set(s3.requests) == set(NEEDED)
    granted = {action for one in written(template)[:1] for action in actions(one)}
    assert s3.needed() == granted | {"s3:ListBucket"}


def test_the_lifecycle_rule_is_for_the_tag_of_tombstones() -> None:
    """The runtime writes the tag, and the construct selects it."""
    assert "=".join(lifecycle.TOMBSTONE_TAG) == TOMBSTONE_TAG


@pytest.mark.failure_mode("F497")
@pytest.mark.parametrize("sets", [False, True])
def test_the_consumer_knows_the_place_of_rejected_rows(*, sets: bool) -> None:
    """It may write there as at outputs, and nowhere else."""
    stack = new_stack()
    intake: IntakePipeline | FileSets = pipeline_of(stack)
    if isinstance(intake, IntakePipeline) and sets:
        intake = FileSets(stack, "Sets", pipeline=intake, form=SetForm.marker("in/*/_SUCCESS"), processor=processor())
    intake.keep_rejects(s3.Bucket.from_bucket_name(stack, "Theirs", "theirs"), "rejects/")
    template = template_of(stack)
    name = "SetsConsumer" if sets else "OrdersConsumer"
    [place] = [
        one["Properties"]["Environment"]["Variables"]["INTAKE_REJECTS"]
        for one in resources(template, "AWS::Lambda::Function", name).values()
    ]
    assert place == "theirs/rejects/"
    [statement] = [one for one in statements(template, name) if "s3:PutObject" in actions(one)]
    assert statement["Resource"]["Fn::Join"][1][-1] == ":s3:::theirs/rejects/*"


@pytest.mark.failure_mode("F497")
@pytest.mark.parametrize(
    ("prefix", "output", "rules"),
    [
        ("rejects/", None, []),
        ("in/rejects/", None, ["output-calls-itself"]),
        ("other/", None, ["output-in-other-intake"]),
        ("rejects/", "copies/", []),
        ("rejects/", "rejects/", ["rejects-in-outputs"]),
        ("copies/rejects/", "copies/", ["rejects-in-outputs"]),
    ],
)
def test_rejected_rows_are_outside_of_the_filters(prefix: str, output: str | None, rules: list[str]) -> None:
    """The pipeline, or another one, would process them. Outputs of the processor have another place."""
    app = new_app()
    stack = Stack(app, "Stack")
    pipeline = pipeline_of(stack)
    pipeline_of(stack, "Others", prefix="other/", bucket=pipeline.bucket)
    if output is not None and output == "rejects/":
        pipeline.grant_output(pipeline.bucket, output)
    pipeline.keep_rejects(pipeline.bucket, prefix)
    if output is not None:
        pipeline.grant_output(pipeline.bucket, output)
    assert found(app) == rules


@pytest.mark.failure_mode("F497")
def test_a_second_place_of_rejected_rows_is_refused() -> None:
    stack = new_stack()
    pipeline = pipeline_of(stack)
    pipeline.keep_rejects(pipeline.bucket, "rejects/")
    with refused("rejects-twice"):
        pipeline.keep_rejects(pipeline.bucket, "rejects/")
