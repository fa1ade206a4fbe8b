"""An existing queue: synthesis reads the settings of a queue of the app, and warns about an imported queue."""

import json
from typing import Any

import pytest
from aws_cdk import Aws, Duration, Environment, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger import (
    IntakeConfigurationError,
    IntakePipeline,
    IntakeQueue,
    MessageIntake,
    MessageSource,
    RetryOptions,
)
from tests.synth.build import (
    later,
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

ARN = "arn:aws:sqs:eu-central-1:111122223333:{}"


def pair(stack: Any, **options: Any) -> tuple[sqs.Queue, sqs.Queue]:
    """An existing queue and a dead-letter queue that fit a default pipeline."""
    fitting = {"visibility_timeout": Duration.minutes(20), "retention_period": Duration.days(4)}
    dead_letters = sqs.Queue(stack, "Dead", retention_period=Duration.days(14))
    return sqs.Queue(stack, "Own", **(fitting | options)), dead_letters


def test_an_own_queue_is_taken_as_it_is() -> None:
    """The pipeline creates no queue, adds the redrive policy that it lacks, and lets S3 send."""
    stack = new_stack()
    own, dead = pair(stack)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    template = template_of(stack)
    assert len(resources(template, "AWS::SQS::Queue")) == 2
    properties = only(template, "AWS::SQS::Queue", "Own")
    assert properties["VisibilityTimeout"] == 1_200
    (dead_letters,) = resources(template, "AWS::SQS::Queue", "Dead")
    target = {"Fn::GetAtt": [dead_letters, "Arn"]}
    assert properties["RedrivePolicy"] == {"deadLetterTargetArn": target, "maxReceiveCount": 1_000}
    assert pipeline.queue is own
    assert pipeline.dead_letter_queue is dead
    (statement,) = statements(template, "Own", "AWS::SQS::QueuePolicy")
    assert statement["Principal"] == {"Service": "s3.amazonaws.com"}
    (policy,) = resources(template, "AWS::SQS::QueuePolicy", "Own")
    (bucket,) = resources(template, "AWS::S3::Bucket").values()
    assert policy in bucket["DependsOn"]
    assert not warnings(stack)


def test_two_readers_of_one_queue_are_noticed() -> None:
    """Two `IntakeQueue` constructs with one queue would take each other's messages."""
    stack = new_stack()
    own, dead = pair(stack)
    one, two = (IntakeQueue(stack, name, queue=own, dead_letter_queue=dead) for name in ("One", "Two"))
    IntakePipeline(stack, "Orders", processor=processor(), queue=one)
    with refused("queue-in-use", "the queue Stack/Own already belongs to Stack/Orders"):
        IntakePipeline(stack, "Returns", processor=processor(), queue=two)


def test_two_readers_of_one_imported_queue_are_noticed() -> None:
    """By its ARN, also in another stack. Another queue is allowed."""
    app = new_app()
    one, two, three = (new_stack(name, app) for name in ("One", "Two", "Three"))

    def taking(stack: Any, name: str) -> IntakePipeline:
        live, dead = (sqs.Queue.from_queue_arn(stack, role, ARN.format(name + role)) for role in ("Live", "Dead"))
        hour = Duration.hours(1)
        queue = IntakeQueue(stack, "Queue", queue=live, dead_letter_queue=dead, visibility_timeout=hour)
        return IntakePipeline(stack, "Orders", processor=processor(), queue=queue)

    taking(one, "intake")
    with refused("queue-in-use", "the queue Two/Live already belongs to One/Orders"):
        taking(two, "intake")
    assert taking(three, "other").queue.queue_name == "otherLive"


def test_what_only_has_the_same_name_in_another_environment_is_another_queue() -> None:
    """`Aws.ACCOUNT_ID` is the same token in the stacks of two accounts. In one account it is the same queue."""
    app = new_app()
    arn = f"arn:aws:sqs:{Aws.REGION}:{Aws.ACCOUNT_ID}:"

    def taking(name: str, account: str) -> IntakePipeline:
        stack = Stack(app, name, env=Environment(account=account, region="eu-central-1"))
        live, dead = (sqs.Queue.from_queue_arn(stack, role, arn + role) for role in ("Live", "Dead"))
        hour = Duration.hours(1)
        queue = IntakeQueue(stack, "Queue", queue=live, dead_letter_queue=dead, visibility_timeout=hour)
        return IntakePipeline(stack, "Orders", processor=processor(), queue=queue)

    taking("Dev", "111111111111")
    taking("Prod", "222222222222")
    with refused("queue-in-use", "the queue Twice/Live already belongs to Dev/Orders"):
        taking("Twice", "111111111111")


def test_two_pipelines_on_one_dead_letter_queue_are_noticed() -> None:
    """A redrive of one pipeline would send messages of the other pipeline to the wrong queue."""
    stack = new_stack()
    (own, dead), (other, _) = pair(stack), pair(Construct(stack, "Other"))
    one = IntakeQueue(stack, "One", queue=own, dead_letter_queue=dead)
    two = IntakeQueue(stack, "Two", queue=other, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=one)
    with pytest.raises(IntakeConfigurationError) as raised:
        IntakePipeline(stack, "Returns", processor=processor(), queue=two)
    (problem,) = raised.value.problems
    assert problem.startswith("the dead-letter queue Stack/Dead already belongs to Stack/Orders: a redrive would")


def test_one_imported_dead_letter_queue_of_two_pipelines_is_noticed() -> None:
    """By its ARN, also in another stack. The queue of one pipeline cannot be the dead-letter queue of another."""
    app = new_app()
    hour = Duration.hours(1)

    def taking(name: str, live: str, dead: str) -> IntakePipeline:
        stack = new_stack(name, app)
        both = [sqs.Queue.from_queue_arn(stack, one.title(), ARN.format(one)) for one in (live, dead)]
        queue = IntakeQueue(stack, "Queue", queue=both[0], dead_letter_queue=both[1], visibility_timeout=hour)
        return IntakePipeline(stack, "Orders", processor=processor(), queue=queue)

    taking("One", "sales", "central")
    with refused("dead-letter-queue-in-use", "dead-letter queue Two/Central already belongs to One/Orders"):
        taking("Two", "returns", "central")
    with refused("dead-letter-queue-in-use", "dead-letter queue Three/Sales already belongs to One/Orders"):
        taking("Three", "invoices", "sales")
    with refused("queue-in-use", "queue Four/Central already belongs to One/Orders"):
        taking("Four", "central", "others")


def test_a_queue_is_not_its_own_dead_letter_queue() -> None:
    """A rejected message would be delivered again at once, without end."""
    stack = new_stack()
    own, _ = pair(stack)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=own)
    with refused("dead-letter-queue-is-queue", "Stack/Own is both queue and dead_letter_queue"):
        IntakePipeline(stack, "Orders", processor=processor(), queue=queue)


def test_the_key_of_an_own_queue_is_used() -> None:
    """S3 may encrypt with it, and the functions may decrypt."""
    stack = new_stack()
    own, dead = pair(stack, encryption_master_key=kms.Key(stack, "Key"))
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    template = template_of(stack)
    policy = only(template, "AWS::KMS::Key")["KeyPolicy"]["Statement"]
    assert "s3.amazonaws.com" in [one["Principal"].get("Service") for one in policy]
    assert "kms:Decrypt" in str(list(statements(template, "OrdersConsumer")))


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"visibility_timeout": Duration.minutes(4)}, "lease-within-visibility", "visibility_timeout is 4 minutes"),
        ({"visibility_timeout": None}, "lease-within-visibility", "visibility_timeout is 30 seconds"),
        ({"retention_period": Duration.hours(1)}, "attempts-within-retention", "retention is 1 hour"),
        ({"retention_period": Duration.days(10)}, "ledger-retention-minimum", "the ledger's retention is 35 days"),
        ({"max_message_size_bytes": 65_535}, "queue-message-size", "has MaximumMessageSize 65535 in the template"),
        ({"fifo": True}, "fifo-queue", "Stack/Own is a FIFO queue"),
        (
            {"encryption": sqs.QueueEncryption.KMS_MANAGED},
            "final-queue-key",
            "KmsMasterKeyId alias/aws/sqs .* No policy lets services use",
        ),
    ],
)
def test_an_own_queue_that_does_not_fit_is_refused(options: dict[str, Any], rule: str, text: str) -> None:
    """These settings would fail later: in SQS, in Lambda, or when attempts run out."""
    stack = new_stack()
    own, dead = pair(stack, **options)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    with refused(rule, text):
        IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
        template_of(stack)


@pytest.mark.failure_mode("F261")
@pytest.mark.parametrize(
    ("own", "dead", "fits"),
    [(None, 262_144, False), (262_144, 262_143, False), (262_144, 262_144, True), (None, 1_048_576, True)],
)
@pytest.mark.parametrize("kind", [IntakePipeline, MessageIntake])
def test_a_dead_letter_queue_with_a_lower_limit_is_refused(
    own: int | None, dead: int, fits: bool, kind: type[object]
) -> None:
    """A queue without a limit takes 1 MiB."""
    stack = new_stack()
    dead_letters = sqs.Queue(stack, "Dead", retention_period=Duration.days(14), max_message_size_bytes=dead)
    queue = sqs.Queue(stack, "Own", visibility_timeout=Duration.minutes(20), max_message_size_bytes=own)

    def make() -> None:
        if kind is IntakePipeline:
            pair = IntakeQueue(stack, "Queue", queue=queue, dead_letter_queue=dead_letters)
            IntakePipeline(stack, "Orders", processor=processor(), queue=pair)
        else:
            source = MessageSource.sqs(queue=queue, dead_letter_queue=dead_letters)
            MessageIntake(stack, "Orders", source=source, key="k", identity="i", processor=processor())
        template_of(stack)

    if fits:
        make()
        return
    with refused("dead-letter-queue-message-size", f"has MaximumMessageSize {dead} in the template"):
        make()


def redriving(stack: Any, dead: sqs.IQueue, receives: int = 1_000) -> sqs.Queue:
    policy = sqs.DeadLetterQueue(queue=dead, max_receive_count=receives)
    return sqs.Queue(stack, "Own", visibility_timeout=Duration.minutes(20), dead_letter_queue=policy)


@pytest.mark.failure_mode("F312")
@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("kind", [IntakePipeline, MessageIntake])
def test_a_redrive_policy_to_another_queue_is_refused(kind: type[object], imported: bool) -> None:
    """SQS would move messages where no alarm and no redrive of the pipeline looks."""
    stack = new_stack()
    dead, other = (sqs.Queue(stack, name, retention_period=Duration.days(14)) for name in ("Dead", "Other"))
    theirs = sqs.Queue.from_queue_arn(stack, "Theirs", ARN.format("theirs")) if imported else dead
    queue = redriving(stack, theirs)
    with refused("queue-redrive-differs", "Stack/Own has RedrivePolicy.deadLetterTargetArn .*Other.* is planned"):
        if kind is IntakePipeline:
            both = IntakeQueue(stack, "Queue", queue=queue, dead_letter_queue=other)
            IntakePipeline(stack, "Orders", processor=processor(), queue=both)
        else:
            source = MessageSource.sqs(queue=queue, dead_letter_queue=other)
            MessageIntake(stack, "Orders", source=source, key="k", identity="i", processor=processor())
        template_of(stack)


@pytest.mark.parametrize("imported", [False, True])
def test_the_dead_letter_queue_is_that_of_the_queue_when_omitted(imported: bool) -> None:
    """An import of the same queue is the same queue."""
    stack = new_stack()
    fresh = sqs.Queue(stack, "Dead", retention_period=Duration.days(14))
    dead = sqs.Queue.from_queue_arn(stack, "Theirs", ARN.format("theirs")) if imported else fresh
    again = sqs.Queue.from_queue_arn(stack, "Again", ARN.format("theirs")) if imported else None
    queue = IntakeQueue(stack, "Queue", queue=redriving(stack, dead), dead_letter_queue=again)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    assert pipeline.dead_letter_queue.queue_arn == dead.queue_arn


def test_a_redrive_policy_of_the_resource_is_read() -> None:
    """The escape hatch of the CDK, which its higher level does not know."""
    stack = new_stack()
    own, dead = pair(stack)
    resource = own.node.default_child
    assert isinstance(resource, sqs.CfnQueue)
    resource.redrive_policy = {"deadLetterTargetArn": dead.queue_arn, "maxReceiveCount": 500}
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    assert only(template_of(stack), "AWS::SQS::Queue", "Own")["RedrivePolicy"]["maxReceiveCount"] == 500


@pytest.mark.failure_mode("F19")
@pytest.mark.parametrize(("receives", "fits"), [(23, False), (24, True)])
def test_a_queue_that_gives_up_early_is_refused(receives: int, fits: bool) -> None:
    """Five copies of a long job use receives, but the ledger counts attempts."""
    stack = new_stack()
    dead = sqs.Queue(stack, "Dead", retention_period=Duration.days(14))
    own = redriving(stack, dead, receives)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    if fits:
        template_of(stack)
        return
    with refused("queue-max-receives", "RedrivePolicy.maxReceiveCount 23 .*, and at least 24 is planned"):
        template_of(stack)


def test_a_smallest_message_of_64_kilobytes_fits() -> None:
    """The other side of the boundary."""
    stack = new_stack()
    own, dead = pair(stack, max_message_size_bytes=65_536)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    assert IntakePipeline(stack, "Orders", processor=processor(), queue=queue).queue is own


@pytest.mark.parametrize("encryption", [sqs.QueueEncryption.SQS_MANAGED, sqs.QueueEncryption.KMS])
def test_an_own_queue_whose_key_s3_can_use_fits(encryption: sqs.QueueEncryption) -> None:
    """SQS's encryption, or a key that CDK creates for the queue."""
    stack = new_stack()
    own, dead = pair(stack, encryption=encryption)
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    keys = resources(template_of(stack), "AWS::KMS::Key").values()
    services = [one["Principal"].get("Service") for key in keys for one in key["Properties"]["KeyPolicy"]["Statement"]]
    assert ("s3.amazonaws.com" in services) == bool(keys)


def test_numbers_that_come_with_the_deployment_are_not_compared() -> None:
    """Parameters of an existing queue stay in the template."""
    stack = new_stack()
    own, dead = pair(stack, visibility_timeout=Duration.seconds(later()), retention_period=Duration.seconds(later()))
    queue = IntakeQueue(stack, "Queue", queue=own, dead_letter_queue=dead)
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    assert only(template_of(stack), "AWS::SQS::Queue", "Own")["VisibilityTimeout"] == {"Ref": "Later"}


def test_options_of_an_existing_queue_are_refused() -> None:
    """All problems are reported at once. A queue without a dead-letter queue is refused."""
    stack = new_stack()
    own, dead = pair(stack)
    both = IntakeQueue(
        stack,
        "Both",
        queue=own,
        dead_letter_queue=dead,
        visibility_timeout=Duration.minutes(30),
        dead_letter_retention=Duration.days(14),
    )
    with pytest.raises(IntakeConfigurationError) as raised:
        IntakePipeline(stack, "Orders", processor=processor(), queue=both)
    assert [(problem.split()[0], *rules_in(problem)) for problem in raised.value.problems] == [
        ("visibility_timeout", "option-of-existing-queue"),
        ("dead_letter_retention", "option-of-existing-queue"),
    ]
    with refused("queue-pair", "Pass both, or a queue that was created with a dead_letter_queue"):
        IntakePipeline(stack, "Invoices", processor=processor(), queue=IntakeQueue(stack, "One", queue=own))


def imported(stack: Any) -> dict[str, Any]:
    return {name: sqs.Queue.from_queue_arn(stack, name, ARN.format(name)) for name in ("queue", "dead_letter_queue")}


@pytest.mark.failure_mode("F68")
def test_the_policy_of_an_imported_queue_is_told_to_the_team() -> None:
    """CDK cannot extend the policy, and does not say so. The warning has the exact statement."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), queue=IntakeQueue(stack, "Queue", **imported(stack)))
    template = template_of(stack)
    assert not resources(template, "AWS::SQS::Queue")
    assert not resources(template, "AWS::SQS::QueuePolicy")
    (warning,) = warned(stack, "queue-policy-unknown")
    statement = json.loads(warning[warning.index("{") : warning.rindex("}") + 1])
    assert statement == {
        "Action": "sqs:SendMessage",
        "Condition": {"StringEquals": {"aws:SourceAccount": "${AWS::AccountId}"}},
        "Effect": "Allow",
        "Principal": {"Service": "s3.amazonaws.com"},
        "Resource": ARN.format("queue"),
    }
    assert warned(stack, "queue-visibility-unknown")


def test_what_is_said_of_an_imported_queue_is_checked() -> None:
    """The only warning left is about the policy."""
    stack = new_stack()
    fitting = IntakeQueue(stack, "Queue", **imported(stack), visibility_timeout=Duration.hours(1))
    IntakePipeline(stack, "Orders", processor=processor(), queue=fitting)
    assert not [text for text in warnings(stack) if "cannot be seen" in text]
    stack = new_stack()
    short = IntakeQueue(stack, "Queue", **imported(stack), visibility_timeout=Duration.minutes(1))
    with refused("visibility-covers-function", "visibility_timeout is 1 minute"):
        IntakePipeline(stack, "Orders", processor=processor(), queue=short, retry=RetryOptions(max_attempts=2))


def test_an_imported_queue_behind_event_bridge() -> None:
    """Two warnings, since EventBridge sends failed events to the dead-letter queue."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    bucket = s3.Bucket(theirs, "Bucket", versioned=True)
    queue = IntakeQueue(ours, "Queue", **imported(ours))
    IntakePipeline(ours, "Orders", processor=processor(), bucket=bucket, queue=queue)
    assert template_of(ours)
    found = warned(ours, "queue-policy-unknown")
    assert len(found) == 2
    assert all("events.amazonaws.com" in text for text in found)
