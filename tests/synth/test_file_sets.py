"""`FileSets`: a function that processes files of a pipeline together."""

import json
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import (
    FileSets,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    IntakeWorkers,
    ManifestFormat,
    Ordering,
    RetryOptions,
    SetForm,
)
from cdk_intake_ledger.kinds.sets.patterns import can_match_both
from intake_ledger.set_members.forms import set_form, set_targets
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    rules_in,
    statements,
    template_of,
    template_with,
    warned,
)

MANIFEST = SetForm.manifest("loads/*/manifest.json")


def with_sets(*, form: SetForm = MANIFEST, pipeline: Json | None = None, **options: Any) -> Stack:
    """A stack with a pipeline and its sets."""
    stack = new_stack()
    orders = IntakePipeline(stack, "Orders", processor=processor(), **(pipeline or {}))
    FileSets(stack, "Loads", pipeline=orders, form=form, **({"processor": processor()} | options))
    return stack


@pytest.fixture(scope="module")
def template() -> Json:
    stack = with_sets(deadline=Duration.hours(6))
    orders: Any = stack.node.find_child("Orders")
    FileSets(stack, "Exports", pipeline=orders, form=SetForm.marker("exports/*/_SUCCESS"), processor=processor())
    return template_of(stack)


def environment(template: Json, path: str) -> Json:
    return dict(only(template, "AWS::Lambda::Function", path)["Environment"]["Variables"])


def joined(value: Any) -> str:
    """A text of a template, with `reference` for each reference."""
    if isinstance(value, str):
        return value
    return "".join(part if isinstance(part, str) else "reference" for part in value["Fn::Join"][1])


def test_the_function_of_the_sets_has_its_own_name_queue_and_deadline(template: Json) -> None:
    sets, parts = environment(template, "LoadsConsumer"), environment(template, "OrdersConsumer")
    assert only(template, "AWS::Lambda::Function", "LoadsConsumer")["Handler"] == "intake_ledger.consumer.handler"
    assert sets["INTAKE_SET_PARTS_PIPELINE"] == parts["INTAKE_PIPELINE_NAME"]
    assert sets["INTAKE_PIPELINE_NAME"] != parts["INTAKE_PIPELINE_NAME"]
    assert sets["INTAKE_MAX_WAIT_SECONDS"] == "21600"
    assert sets["INTAKE_QUEUE_URL"]["Ref"].startswith("LoadsQueueMessages")
    assert sets["INTAKE_DLQ_URL"]["Ref"].startswith("LoadsQueueDeadLetters")
    for shared in ("INTAKE_BUCKET_NAME", "INTAKE_TABLE_NAME", "INTAKE_KEY_FILTERS"):
        assert sets[shared] == parts[shared]


def test_the_runtime_reads_the_variables_of_both_functions(template: Json) -> None:
    """The construct and the runtime agree on the form."""
    form = set_form(json.loads(environment(template, "LoadsConsumer")["INTAKE_SET_FORM"]), "INTAKE_SET_FORM")
    targets = set_targets(joined(environment(template, "OrdersConsumer")["INTAKE_SETS"]))
    assert [one.form.pattern for one in targets] == ["loads/*/manifest.json", "exports/*/_SUCCESS"]
    assert targets[0].form == form
    assert targets[0].name == environment(template, "LoadsConsumer")["INTAKE_PIPELINE_NAME"]
    assert {one.queue_url for one in targets} == {"reference"}


@pytest.mark.parametrize(
    ("form", "content"),
    [
        (
            SetForm.manifest("**/m.csv", format=ManifestFormat.CSV, absolute_keys=True),
            {"form": "manifest", "pattern": "**/m.csv", "parts": "csv", "keys": "absolute"},
        ),
        (SetForm.marker("*/_SUCCESS"), {"form": "marker", "pattern": "*/_SUCCESS"}),
        (SetForm.quiet_prefix("in/*/"), {"form": "quiet", "pattern": "in/*/", "quietSeconds": 600}),
    ],
)
def test_the_runtime_accepts_each_form(form: SetForm, content: Json) -> None:
    assert form.settings == content
    set_form(form.settings, "INTAKE_SET_FORM")


def test_the_consumer_of_the_parts_may_wake_the_sets_and_find_manifests(template: Json) -> None:
    granted = list(statements(template, "OrdersConsumer"))
    targets = [one["Resource"]["Fn::GetAtt"][0] for one in granted if actions(one) == ["sqs:SendMessage"]]
    assert [one[:10] for one in sorted(targets)] == ["ExportsQue", "LoadsQueue", "OrdersQueu"]
    assert any("dynamodb:Query" in actions(one) for one in granted)


def test_the_function_of_the_sets_reads_bucket_and_ledger_and_takes_only_its_own_messages(template: Json) -> None:
    granted = list(statements(template, "LoadsConsumer"))
    receiving = [one["Resource"]["Fn::GetAtt"][0] for one in granted if "sqs:ReceiveMessage" in actions(one)]
    assert [one[:18] for one in receiving] == ["LoadsQueueMessages"]
    allowed = {action for one in granted for action in actions(one)}
    assert {"s3:GetObjectVersion", "s3:ListBucket", "dynamodb:BatchWriteItem", "dynamodb:BatchGetItem"} <= allowed


@pytest.mark.failure_mode("F191")
def test_the_audit_of_the_parts_knows_the_name_of_the_sets(template: Json) -> None:
    """It does not take their rows for those of a former name."""
    names = sorted(environment(template, f"{name}Consumer")["POWERTOOLS_SERVICE_NAME"] for name in ("Loads", "Exports"))
    assert environment(template, "OrdersAudit")["INTAKE_OTHER_PIPELINES"].split(",") == names


def test_only_manifests_need_the_items_of_their_parts(template: Json) -> None:
    allowed = {action for one in statements(template, "ExportsConsumer") for action in actions(one)}
    assert "dynamodb:BatchWriteItem" not in allowed


def test_the_audit_of_the_sets_runs_each_hour(template: Json) -> None:
    made = only(template, "AWS::Scheduler::Schedule", "Loads")
    assert made["ScheduleExpression"] == "rate(60 minutes)"
    assert json.loads(made["Target"]["Input"]) == {"auditSets": True}


@pytest.mark.failure_mode("F170")
@pytest.mark.parametrize(
    ("options", "hours"),
    [
        ({}, 36),
        ({"deadline": Duration.hours(6)}, 3),
        ({"deadline": Duration.hours(6), "alarm_after": Duration.hours(1)}, 1),
    ],
)
def test_an_alarm_tells_of_a_waiting_set_before_its_deadline(options: Json, hours: int) -> None:
    """The function counts the set when its wait becomes long: half of `max_wait`, or `alarm_after`."""
    template = template_of(with_sets(**options))
    alarm = only(template, "AWS::CloudWatch::Alarm", "LoadsMonitoringLongWaits")
    variables = environment(template, "LoadsConsumer")
    assert alarm["Dimensions"] == [{"Name": "service", "Value": variables["POWERTOOLS_SERVICE_NAME"]}]
    after = variables.get("INTAKE_ALARM_AFTER_SECONDS", int(variables["INTAKE_MAX_WAIT_SECONDS"]) / 2)
    assert int(after) == hours * 3_600


def test_the_dashboard_shows_the_age_of_the_oldest_waiting_set() -> None:
    stack = with_sets()
    sets: Any = stack.node.find_child("Loads")
    shown = [json.dumps(stack.resolve(widget.to_json())) for widget in sets.monitoring.widgets()]
    assert sum('"OldestWaitingSet"' in one for one in shown) == 1


def test_the_function_of_the_sets_finds_waiting_rows_in_the_index(template: Json) -> None:
    for name in ("LoadsConsumer", "ExportsConsumer"):
        [granted] = [one for one in statements(template, name) if actions(one) == ["dynamodb:Query"]]
        index, _ = granted["Resource"]
        assert joined(index).endswith("/index/needs_review")


def test_a_pipeline_without_sets_has_none_of_this() -> None:
    assert "INTAKE_SETS" not in environment(template_with(), "OrdersConsumer")


def test_a_set_name_fixes_the_logical_ids() -> None:
    template = template_of(with_sets(name="DailyLoad"))
    assert environment(template, "DailyLoadConsumer")["INTAKE_PIPELINE_NAME"] == "DailyLoad"


def test_the_consumer_of_the_parts_may_use_the_key_of_the_sets_queue() -> None:
    stack = new_stack()
    orders = IntakePipeline(stack, "Orders", processor=processor())
    queue = IntakeQueue(stack, "Theirs", encryption_key=kms.Key(stack, "Key"))
    FileSets(stack, "Loads", pipeline=orders, form=MANIFEST, processor=processor(), queue=queue)
    allowed = {action for one in statements(template_of(stack), "OrdersConsumer") for action in actions(one)}
    assert {"kms:Decrypt", "kms:GenerateDataKey"} <= allowed


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"form": SetForm.manifest("")}, "set-form-pattern", "manifest"),
        ({"form": SetForm.marker("a/**/_SUCCESS")}, "set-form-pattern", r"only a manifest may have \*\*"),
        ({"form": SetForm.marker("a/_*")}, "set-form-pattern", "key of the marker"),
        ({"form": SetForm.marker("a/")}, "set-form-pattern", "not folders"),
        ({"form": SetForm.quiet_prefix("drops")}, "set-form-pattern", "slash"),
        ({"form": SetForm.quiet_prefix("s3://bucket/drops/*/")}, "key-is-uri", "Write 'drops/"),
        ({"form": SetForm.quiet_prefix("in/", quiet_for=Duration.hours(12))}, "set-quiet-for", "12 hours"),
        ({"deadline": Duration.seconds(5)}, "set-deadline", "5 seconds"),
        ({"deadline": Duration.days(366)}, "set-deadline", "1 minute to 365 days"),
        ({"alarm_after": Duration.seconds(5)}, "set-alarm-after", "5 seconds"),
        ({"alarm_after": Duration.days(3)}, "set-alarm-after", "less than 3 days"),
        ({"deadline": Duration.hours(1), "alarm_after": Duration.hours(1)}, "set-alarm-after", "deadline"),
        ({"form": SetForm.quiet_prefix("in/"), "deadline": Duration.minutes(19)}, "set-quiet-deadline", "20 minutes"),
        ({"retry": RetryOptions(max_wait=Duration.hours(1))}, "set-deadline-twice", ""),
        ({"pipeline": {"ordering": Ordering.EVERY_VERSION}}, "set-every-version", "Stack/Orders"),
        ({"processor": processor(max_per_call=2)}, "set-per-call", "max_per_call=2"),
        ({"name": "9"}, "name-format", ""),
        ({"processing_timeout": Duration.hours(1)}, "processing-timeout-range", ""),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: Json, rule: str, text: str) -> None:
    with refused(rule, text):
        with_sets(**options)


@pytest.mark.failure_mode("F173")
def test_a_deadline_of_twice_the_quiet_time_is_allowed_and_a_shorter_one_is_refused() -> None:
    form = SetForm.quiet_prefix("drops/*/", quiet_for=Duration.minutes(10))
    with_sets(form=form, deadline=Duration.minutes(20))
    with refused("set-quiet-deadline", "at least 20 minutes"):
        with_sets(form=form, deadline=Duration.seconds(1_199))


@pytest.mark.failure_mode("F172")
@pytest.mark.parametrize(
    ("retention", "deletes", "named"),
    [(Duration.days(35), False, "35 days"), (Duration.days(90), False, "90 days"), (None, False, None),
     (Duration.days(35), True, None)],
)  # fmt: skip
def test_synthesis_warns_if_the_rows_of_the_parts_expire(
    retention: Duration | None, deletes: bool, named: str | None
) -> None:
    """A pipeline with `deletes` keeps the rows of objects as long as the objects."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger", retention=retention)
    orders = IntakePipeline(stack, "Orders", processor=processor(), ledger=ledger, deletes=deletes)
    FileSets(stack, "Loads", pipeline=orders, form=MANIFEST, processor=processor())
    texts = warned(stack, "set-rows-expire")
    assert len(texts) == (named is not None)
    assert all(str(named) in text and "IntakeLedger(retention=None)" in text for text in texts)


@pytest.mark.parametrize(
    ("form", "prefix", "suffix", "allowed"),
    [
        (MANIFEST, "loads/", "", True),
        (MANIFEST, "other/", "", False),
        (MANIFEST, "", ".json", True),
        (MANIFEST, "", ".csv", False),
        (SetForm.manifest("**/manifest.json"), "deep/er/", "", True),
        (SetForm.marker("out/*/_SUCCESS"), "out/", "", True),
        (SetForm.marker("out/*/_SUCCESS"), "out/", ".csv", False),
        (SetForm.quiet_prefix("drops/*/"), "drops/eu/", "", True),
        (SetForm.quiet_prefix("drops/*/"), "in/", "", False),
    ],
)
def test_a_form_that_the_pipeline_never_sees_is_refused(form: SetForm, prefix: str, suffix: str, allowed: bool) -> None:
    filters = [s3.NotificationKeyFilter(prefix=prefix or None, suffix=suffix or None)]
    if allowed:
        with_sets(form=form, pipeline={"filters": filters})
        return
    with refused("set-outside-filters"):
        with_sets(form=form, pipeline={"filters": filters})


@pytest.mark.failure_mode("F227")
def test_filters_that_pass_the_marker_and_no_part_are_refused() -> None:
    """Each set would be processed without parts."""
    marker = SetForm.marker("exports/*/_SUCCESS")
    with refused("set-without-parts"):
        with_sets(form=marker, pipeline={"filters": [s3.NotificationKeyFilter(suffix="/_SUCCESS")]})
    both = [s3.NotificationKeyFilter(suffix=suffix) for suffix in ("/_SUCCESS", ".csv")]
    with_sets(form=marker, pipeline={"filters": both})


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        (SetForm.marker("/exports/*/_SUCCESS"), "key-begins-with-slash"),
        (SetForm.quiet_prefix("drops/{date}/"), "key-placeholder"),
        (SetForm.manifest("loads/[0-9]*/manifest.json"), "key-placeholder"),
        (SetForm.manifest("loads/*/manifest.csv"), "set-manifest-format"),
        (SetForm.manifest("loads/*/manifest.csv", format=ManifestFormat.CSV), None),
        (SetForm.manifest("loads/*/manifest.manifest"), None),
    ],
)
@pytest.mark.failure_mode("F227")
def test_a_form_that_is_probably_wrong_is_a_warning(form: SetForm, rule: str | None) -> None:
    scope = Construct(new_stack(), "Scope")
    form.warn(scope)
    assert [one for entry in scope.node.metadata for one in rules_in(str(entry.data))] == [rule] * (rule is not None)


@pytest.mark.parametrize(
    ("form", "allowed"),
    [
        (SetForm.manifest("loads/eu/*"), False),
        (SetForm.manifest("**.json"), False),
        (SetForm.quiet_prefix("loads/*/"), False),
        (SetForm.manifest("loads/*/list.json"), True),
        (SetForm.marker("loads/*/_SUCCESS"), True),
    ],
)
def test_two_sets_of_a_pipeline_never_share_a_key(form: SetForm, allowed: bool) -> None:
    stack = with_sets()
    orders: Any = stack.node.find_child("Orders")
    if allowed:
        FileSets(stack, "More", pipeline=orders, form=form, processor=processor())
        return
    with refused("set-forms-overlap", "Loads"):
        FileSets(stack, "More", pipeline=orders, form=form, processor=processor())


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("*", "a/b", False),
        ("**", "a/b", True),
        ("a*c", "ab*", True),
        ("*/x", "a/*", True),
        ("*", "", True),
        ("a**z", "*", True),
        ("a/**", "*", False),
        ("*a", "*b", False),
        ("**/m", "*/*/m", True),
    ],
)
def test_patterns_meet_if_a_key_matches_both(one: str, other: str, meet: bool) -> None:
    assert can_match_both(one, other) is meet
    assert can_match_both(other, one) is meet


def test_sets_in_another_stack_are_refused() -> None:
    app = new_app()
    orders = IntakePipeline(new_stack(app=app), "Orders", processor=processor())
    with refused("set-other-stack", "Stack"):
        FileSets(new_stack("Other", app), "Loads", pipeline=orders, form=MANIFEST, processor=processor())


def test_sets_after_workers_are_refused() -> None:
    """Before them, the workers wake the sets as the function does."""
    stack = with_sets()
    orders: Any = stack.node.find_child("Orders")
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Network", nat_gateways=1))
    image = ecs.ContainerImage.from_registry("example/orders")
    IntakeWorkers(stack, "Workers", intake=orders, cluster=cluster, image=image)
    [container] = only(template_of(stack), "AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    assert "INTAKE_SETS" in {one["Name"] for one in container["Environment"]}
    with refused("set-after-workers", "Stack/Orders"):
        FileSets(stack, "More", pipeline=orders, form=SetForm.marker("x/_SUCCESS"), processor=processor())
