"""Finds a deployed pipeline by its stack, from the environment variables of its functions."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import RowKey, operations_partition, row_key
from intake_ledger.protocol.settings import (
    DURABLE_FUNCTION,
    MESSAGE_SOURCE,
    SET_FORM,
    SET_PARTS_PIPELINE,
    STATE_MACHINE,
    ConsumerSettings,
    Settings,
    setting_from,
    settings_from,
    settings_of_sets,
    variable_of,
)
from intake_ledger.protocol.settings_audit import AuditSettings, Reports
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.set_members.forms import SetTarget, set_targets
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.errors import CliError, denied_action
from intake_ledger_cli.kinds import MESSAGES, OBJECTS, SETS, Work

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_lambda import LambdaClient

_FUNCTION, _ALARM, _STACK = "AWS::Lambda::Function", "AWS::CloudWatch::Alarm", "AWS::CloudFormation::Stack"
_NAME, _DLQ = variable_of(ConsumerSettings, "pipeline"), variable_of(ConsumerSettings, "dlq_url")
_MAX_WAIT = variable_of(ConsumerSettings, "max_wait_seconds")
_SETTLE = variable_of(AuditSettings, "settle_seconds")
_MACHINE = "AWS::StepFunctions::StateMachine"
_STREAMS = ("kinesis", "dynamodb")
_OF_PIPELINES = re.compile("Consumer|Audit")
"""Logical IDs of a pipeline's functions have one of these parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedPipeline(Settings):
    """A deployed pipeline, with the settings that its consumer and its audit share. The commands read of the others
    only those that they need, so that it also describes older deployments.
    """

    dead_letter_url: str
    consumer_function: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Those of the consumer's function, which `setting` reads."""
    audit_function: str | None
    """None if the audit is disabled."""
    alarms: tuple[str, ...]
    """All alarms of the stack."""
    machines: tuple[str, ...]
    """The ARNs of all state machines of the stack. One of them may run the audit in parts."""
    durable: DurableSettings | None = None
    """The settings of the durable function that is the processor, if one is."""
    reports: str | None
    """The S3 prefix of the audit's reports, which ends with the pipeline's name. None if reports are not kept."""
    _read: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Settings that were read. A command asks for some of them at each object."""

    def setting(self, name: str) -> Any:
        """Read a setting of the consumer, as its function does.

        Args:
            name: a field of `ConsumerSettings`.

        Raises:
            CliError: The function cannot run, since its variable is malformed.

        """
        if name not in self._read:
            try:
                self._read[name] = setting_from(ConsumerSettings, name, self.variables)
            except SettingsError as problem:
                raise CliError(f"the function {self.consumer_function} cannot run: {problem}") from None
        return self._read[name]

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.pipeline

    @property
    def message_source(self) -> str | None:
        """The kind of the source of an intake of messages, such as `sqs` or `kinesis`. None for a pipeline of files."""
        return self.variables.get(MESSAGE_SOURCE)

    @property
    def has_sets(self) -> bool:
        """True if this is a pipeline of sets of files. `sets_of_parts` are those of a pipeline of objects."""
        return SET_FORM in self.variables

    @property
    def sets_of_parts(self) -> tuple[SetTarget, ...]:
        """The sets of files that have the pipeline's objects as parts."""
        return set_targets(sets) if (sets := self.setting("sets")) else ()

    @property
    def max_wait_seconds(self) -> int | None:
        """The time for which a change may wait before it is rejected: `max_wait`, or the deadline of a set. None: a
        former release made the function.
        """
        return self.setting("max_wait_seconds") if _MAX_WAIT in self.variables else None

    @property
    def state_machine(self) -> str | None:
        """The ARN of the state machine that is the processor, if one is."""
        return self.variables.get(STATE_MACHINE)

    @property
    def has_executions(self) -> bool:
        """True if executions do the work. A claim outlives its lease then."""
        return self.state_machine is not None or self.durable is not None

    @property
    def work(self) -> Work:
        """The kind of its work."""
        if self.message_source is not None:
            return MESSAGES
        return SETS if self.has_sets else OBJECTS

    def reader_of_names(self) -> Callable[[str], tuple[str, str] | None] | None:
        """Read the key and the identity in a body. It has None without them, and for a bucket.

        None: the function is of another release, whose settings this one cannot read.
        """
        if self.message_source is None:
            return lambda _: None
        # They import the runtime's clients, which `--help` does not need.
        from intake_ledger.messages.reader import MessageReader  # noqa: PLC0415
        from intake_ledger.messages.settings import message_settings  # noqa: PLC0415

        try:
            return MessageReader(message_settings(self.variables)).names_in
        except SettingsError:
            return None

    @property
    def place(self) -> str:
        """The bucket, or the kind of the messages' source, as people read it."""
        if self.message_source:
            return f"messages of {self.message_source}"
        parts = f", sets of parts of {self.variables[SET_PARTS_PIPELINE]}" if self.has_sets else ""
        return f"bucket {self.bucket}{parts}"

    @property
    def operations_partition(self) -> str:
        """The partition key of the records of operations, and of the lock of redrives. No row has such a key."""
        return operations_partition(self.pipeline)

    def row_key(self, key: str, identity: str) -> RowKey:
        """The key of the row of a state."""
        return row_key(self.pipeline, self.ordering, self.bucket, key, identity)

    @property
    def reads_stream(self) -> bool:
        """True if the messages come from a stream. The queue has redriven records only."""
        return self.message_source in _STREAMS

    def is_control(self, key: str) -> bool:
        """True if the key is that of a manifest or a marker, which the pipeline does not process."""
        return any(target.form.is_control(key) for target in self.sets_of_parts)


def find_pipeline(aws: Aws, stack: str, pipeline: str | None = None) -> DeployedPipeline:
    """Find the pipeline of a stack. `pipeline` is its name or its construct's ID, and is required if the stack has
    several.

    Raises:
        CliError: The stack or the pipeline does not exist, or several pipelines match.

    """
    resources = list(_resources(aws.cloudformation, stack, aws.region))
    names = [name for type_, _, name in resources if type_ == _FUNCTION]
    # A stack may have hundreds of functions. Ask for those first whose logical IDs are as a pipeline's.
    likely = [name for type_, logical, name in resources if type_ == _FUNCTION and _OF_PIPELINES.search(logical)]
    environments, denied = _environments(aws.functions, likely)
    if not (consumers := _by_pipeline(environments, _DLQ)):
        others, more = _environments(aws.functions, [name for name in names if name not in likely])
        environments, denied = environments | others, denied + more
        consumers = _by_pipeline(environments, _DLQ)
    if not consumers:
        if denied:
            raise denied[0]
        raise CliError(f"the stack {stack} has no intake pipeline among its {len(names)} functions: check --stack")
    name = _choose(stack, sorted(consumers), pipeline)
    function, variables = consumers[name]
    audit_function, audit_variables = _by_pipeline(environments, _SETTLE).get(name, (None, {}))
    try:
        deployed = settings_from(
            DeployedPipeline,
            variables,
            dead_letter_url=setting_from(ConsumerSettings, "dlq_url", variables),
            consumer_function=function,
            variables=variables,
            audit_function=audit_function,
            alarms=tuple(name for type_, _, name in resources if type_ == _ALARM),
            machines=tuple(name for type_, _, name in resources if type_ == _MACHINE),
            durable=settings_from(DurableSettings, variables) if DURABLE_FUNCTION in variables else None,
            reports=_report_prefix(audit_variables, name),
        )
        return settings_of_sets(deployed) if deployed.has_sets else deployed
    except SettingsError as problem:
        raise CliError(f"the function {function} of the stack {stack} cannot run: {problem}") from None


def _by_pipeline(
    environments: Mapping[str, Mapping[str, str]], variable: str
) -> dict[str, tuple[str, Mapping[str, str]]]:
    """Return the functions that have a variable by the pipeline's name, each with its environment variables."""
    return {
        variables[_NAME]: (function, variables)
        for function, variables in environments.items()
        if _NAME in variables and variable in variables
    }


def _report_prefix(variables: Mapping[str, str], name: str) -> str | None:
    if not variables.get(variable_of(Reports, "bucket")):
        return None
    return f"s3://{setting_from(Reports, 'bucket', variables)}/{setting_from(Reports, 'prefix', variables)}{name}/"


def _choose(stack: str, names: list[str], wanted: str | None) -> str:
    """Return the name of the selected pipeline."""
    listed = ", ".join(names)
    if wanted is None:
        if len(names) > 1:
            raise CliError(f"the stack {stack} has several pipelines, name one with --pipeline: {listed}")
        return names[0]
    # A default name is the construct's path and a hash of the path.
    end = re.compile(rf"(.*-)?{re.escape(wanted)}(-[0-9A-F]{{8}})?")
    found = [name for name in names if name == wanted] or [name for name in names if end.fullmatch(name)]
    if not found:
        raise CliError(f"the stack {stack} has no pipeline {wanted!r}, it has: {listed}")
    if len(found) > 1:
        raise CliError(f"--pipeline {wanted} matches several pipelines, use a whole name: {', '.join(found)}")
    return found[0]


def _resources(client: "CloudFormationClient", stack: str, region: str) -> Iterator[tuple[str, str, str]]:
    """Yield type and physical ID of each resource of the stack and its nested stacks."""
    try:
        # DescribeStackResources returns at most 100 resources.
        for page in client.get_paginator("list_stack_resources").paginate(StackName=stack):
            for one in page["StackResourceSummaries"]:
                name = one.get("PhysicalResourceId")
                if not name or one["ResourceStatus"] == "DELETE_COMPLETE":
                    continue
                if one["ResourceType"] == _STACK:
                    yield from _resources(client, name, region)
                else:
                    yield one["ResourceType"], one.get("LogicalResourceId", ""), name
    except ClientError as error:
        detail = error.response["Error"]
        if detail.get("Code") == "ValidationError" and "does not exist" in detail.get("Message", ""):
            raise CliError(f"there is no stack {stack} in {region}: check --stack, --region and --profile") from None
        raise


def _environments(client: "LambdaClient", names: list[str]) -> tuple[dict[str, Mapping[str, str]], list[Exception]]:
    """Return the environment variables of each function, and the errors for functions that the caller may not read."""
    environments: dict[str, Mapping[str, str]] = {}
    denied: list[Exception] = []
    for name in names:
        try:
            environments[name] = (
                client.get_function_configuration(FunctionName=name).get("Environment", {}).get("Variables", {})
            )
        except ClientError as error:
            if denied_action(error) is None:
                raise
            denied.append(error)
    return environments, denied
