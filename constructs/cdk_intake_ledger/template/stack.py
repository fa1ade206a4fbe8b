"""The stack of a template: one pipeline, whose processor is an existing Lambda function."""

from importlib.metadata import PackageNotFoundError, version

from aws_cdk import (
    Annotations,
    Aws,
    CfnCondition,
    CfnOutput,
    CfnParameter,
    DefaultStackSynthesizer,
    Duration,
    Fn,
    ICfnConditionExpression,
    Stack,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.reporting import WARNING_PREFIX
from cdk_intake_ledger.checks.rules.final_rules import ALARMS_WITHOUT_ACTION
from cdk_intake_ledger.delivery.key_filters import KeyPattern, read_patterns
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.options import Delivery, RetryOptions
from cdk_intake_ledger.pipeline import IntakePipeline
from cdk_intake_ledger.resources.fixed_names import tag
from cdk_intake_ledger.template.options import FUNCTION_ARN, TemplateOptions

CODE_BUCKET, RUNTIME_KEY = "CodeBucket", "RuntimeKey"
"""The parameters of the runtime's archive."""
OWN_RUNTIME_KEY = "OwnRuntimeKey"
"""The condition that the parameter `RuntimeKey` has a value."""
ALARM_TOPIC, HAS_ALARM_TOPIC = "AlarmTopicArn", "HasAlarmTopic"
"""The parameter of the alarms' topic, and the condition that it has a value."""
_NO_TOPIC_OR_ARN = r"|arn:[a-z-]+:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9-_]+"


class TemplateStack(Stack):
    """The pipeline with the parameters and outputs of the template."""

    def __init__(self, scope: Construct, id: str, *, options: TemplateOptions) -> None:
        """Make the stack.

        Args:
            scope: the app.
            id: the construct's ID. The template does not contain it.
            options: options that are fixed in the template.

        Raises:
            IntakeConfigurationError: the pipeline cannot work. It lists all problems.

        """
        super().__init__(
            scope,
            id,
            description=f"Intake pipeline {options.name} of cdk-intake-ledger {_release()}",
            analytics_reporting=False,
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        self._add_parameters()
        arn = CfnParameter(
            self,
            "ProcessorArn",
            description="ARN of the Lambda function, version or alias that processes one object",
            default=options.processor_arn,
            allowed_pattern=FUNCTION_ARN,
        ).value_as_string
        function = lambda_.Function.from_function_attributes(self, "Processor", function_arn=arn, same_environment=True)
        key = kms.Key.from_key_arn(self, "Key", options.key_arn) if options.key_arn else None
        # With the ledger's own ID, another retention does not replace the table.
        ledger = IntakeLedger(
            self,
            "Ledger",
            ledger_name=options.name,
            retention=Duration.days(options.retention_days),
            encryption_key=key,
        )
        tag(ledger, options.name)
        pipeline = IntakePipeline(
            self,
            options.name,
            name=options.name,
            processor=Processor.from_function(function),
            bucket=s3.Bucket.from_bucket_name(self, "Existing", options.existing_bucket)
            if options.existing_bucket
            else None,
            filters=[s3.NotificationKeyFilter(prefix=options.prefix or None, suffix=options.suffix or None)]
            if options.prefix or options.suffix
            else None,
            ordering=options.ordering,
            deletes=options.deletes,
            processing_timeout=Duration.seconds(options.processing_timeout),
            delivery=Delivery.EVENTBRIDGE if options.event_bridge else None,
            ledger=ledger,
            retry=RetryOptions(max_attempts=options.max_attempts),
            encryption_key=key,
        )
        # The parameter of their topic is added to the written template.
        acknowledgement = f"{WARNING_PREFIX}:{ALARMS_WITHOUT_ACTION.acknowledgement}"
        Annotations.of(pipeline).acknowledge_warning(acknowledgement)
        bucket = pipeline.bucket.node.default_child
        if options.bucket_name and isinstance(bucket, s3.CfnBucket):
            bucket.bucket_name = options.bucket_name
        self._let_the_processor_read(pipeline, options)
        self._add_outputs(pipeline)

    def _add_parameters(self) -> None:
        CfnParameter(
            self,
            CODE_BUCKET,
            description="S3 bucket in the region of the stack that has the runtime's archive",
        )
        key = CfnParameter(
            self,
            RUNTIME_KEY,
            description="Key of the runtime's archive. If empty, the key that `intake-ledger template` has printed",
            default="",
        )
        CfnCondition(self, OWN_RUNTIME_KEY, expression=_is_set(key))
        topic = CfnParameter(
            self,
            ALARM_TOPIC,
            description="ARN of the SNS topic that the composite alarms notify; empty for none",
            default="",
            allowed_pattern=_NO_TOPIC_OR_ARN,
        )
        CfnCondition(self, HAS_ALARM_TOPIC, expression=_is_set(topic))

    def _let_the_processor_read(self, pipeline: IntakePipeline, options: TemplateOptions) -> None:
        """Let the role of the processor read the objects, if the parameter names the role.

        The pipeline cannot grant it: the function is not a resource of the template.
        """
        role = CfnParameter(
            self,
            "ProcessorRoleName",
            description="Name of the processor's role, which then may read the objects; empty if it already may",
            default="",
        )
        document = iam.PolicyDocument()
        document.add_statements(
            iam.PolicyStatement(
                sid="ObjectsThatTheFiltersLetThrough",
                actions=["s3:GetObject", "s3:GetObjectVersion"],
                resources=[pipeline.bucket.arn_for_objects(one) for one in read_patterns([KeyPattern(options.prefix)])],
            )
        )
        if options.key_arn:
            document.add_statements(iam.PolicyStatement(actions=["kms:Decrypt"], resources=[options.key_arn]))
        policy = iam.CfnPolicy(
            self,
            "ProcessorMayRead",
            # Two pipelines may have the same processor, and a role has each name of a policy once.
            policy_name=f"{Aws.STACK_NAME}-read-objects",
            policy_document=document,
            roles=[role.value_as_string],
        )
        policy.cfn_options.condition = CfnCondition(self, "HasProcessorRole", expression=_is_set(role))

    def _add_outputs(self, pipeline: IntakePipeline) -> None:
        outputs = {
            "BucketName": (pipeline.bucket.bucket_name, "Bucket where files arrive"),
            "BucketArn": (pipeline.bucket.bucket_arn, "ARN of the bucket, for policies of uploaders"),
            "QueueUrl": (pipeline.queue.queue_url, "Queue of S3's events"),
            "DeadLetterQueueUrl": (pipeline.dead_letter_queue.queue_url, "Messages that need an operator"),
            "LedgerTableName": (pipeline.table.table_name, "Table of the ledger"),
            "ConsumerFunctionName": (pipeline.function.function_name, "Function that calls the processor"),
            "AuditFunctionName": (pipeline.audit_function.function_name, "Function that finds lost events"),
        }
        for name, (value, description) in outputs.items():
            CfnOutput(self, name, value=value, description=description)


def _is_set(parameter: CfnParameter) -> ICfnConditionExpression:
    return Fn.condition_not(Fn.condition_equals(parameter.value_as_string, ""))


def _release() -> str:
    try:
        return version("cdk-intake-ledger")
    except PackageNotFoundError:
        return "(not installed)"
