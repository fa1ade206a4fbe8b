"""The parts that every processor has: its code, its settings, and the resources of the consumer that runs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aws_cdk import Duration, Size
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.limits import DEFAULT_STORAGE
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.processor_rules import FUNCTION_ARGUMENT_TYPE
from cdk_intake_ledger.functions.executions import Executions
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME
from cdk_intake_ledger.functions.processor_problems import (
    environment_problems,
    runtime_problems,
    version_problems,
)
from cdk_intake_ledger.functions.remote_function import RemoteFunction, WorkElsewhere
from intake_ledger.protocol.settings import ConsumerSettings, environment_of

if TYPE_CHECKING:
    from cdk_intake_ledger.bundling.processor_folder import ProcessorFolder


ARGUMENT_TYPES = ("ObjectChange", "KeyedMessage", "FileSet")
"""The types of the argument of a processor, by the kind of its work."""


@check_arguments
class ProcessorBase:
    """The code and the settings of a processor. `Processor` has the ways to make one."""

    def __init__(
        self,
        make_code: Callable[[], lambda_.Code | lambda_.DockerImageCode],
        *,
        entrypoint: str,
        memory_size: int = 512,
        ephemeral_storage_size: int = DEFAULT_STORAGE,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
        problems: Sequence[Problem] = (),
        elsewhere: WorkElsewhere | None = None,
        capacity_provider: lambda_.ICapacityProvider | None = None,
        processor_version: str | None = None,
        max_per_call: int = 1,
    ) -> None:
        """Describe a processor. Use one of the class methods of `Processor` instead.

        Args:
            make_code: makes the code, once for each pipeline.
            entrypoint: `module:function`.
            memory_size: as for `from_asset`, in MiB; 512 when omitted.
            ephemeral_storage_size: as for `from_asset`, in MiB; 512 when omitted.
            environment: as for `from_asset`; empty when omitted.
            runtime: as for `from_asset`; Python 3.13 when omitted.
            architecture: as for `from_asset`; arm64 when omitted.
            layers: as for `from_asset`; none when omitted.
            problems: reasons why the processor cannot work, which the pipeline reports; none when omitted.
            elsewhere: the place of the work; the processor is the code itself when omitted.
            capacity_provider: as for `from_asset`; Lambda's own capacity when omitted.
            processor_version: as for `from_code`; the hash of an asset or of inline code when omitted.
            max_per_call: as for `from_asset`; 1 when omitted.

        """
        self._make_code = make_code
        self._problems = tuple(problems)
        self.entrypoint = entrypoint
        """`module:function`; empty if the work is done elsewhere."""
        self.elsewhere = elsewhere
        """The place of the work; None if the consumer has the code."""
        self.capacity_provider = capacity_provider
        """The capacity provider of the consumer's function; None for Lambda's own capacity."""
        self.processor_version = processor_version
        """Your version of the code; None for the hash of an asset or of inline code."""
        self.max_per_call = max_per_call
        """The largest number of changes in one call. Above 1, the function takes a list and returns results."""
        self.memory_size = memory_size
        """Memory of the consumer's function, in MiB."""
        self.ephemeral_storage_size = ephemeral_storage_size
        """Size of the `/tmp` of the consumer's function, in MiB."""
        self.environment = dict(environment or {})
        """Your environment variables."""
        self.runtime = runtime or TESTED_RUNTIME
        """Runtime of the consumer's function."""
        self.architecture = architecture or lambda_.Architecture.ARM_64
        """Architecture of the consumer's function."""
        self.layers = tuple(layers)
        """Your layers, without the pipeline's."""
        self._folder: ProcessorFolder | None = None

    @property
    def is_elsewhere(self) -> bool:
        """True if an existing function or executions do the work, and the consumer has none of its code."""
        return self.elsewhere is not None

    @property
    def function(self) -> lambda_.IFunction | None:
        """The existing function, or None."""
        return self.elsewhere.function if isinstance(self.elsewhere, RemoteFunction) else None

    @property
    def executions(self) -> Executions | None:
        """The executions of a state machine or of a durable function, with their times, or None."""
        return self.elsewhere if isinstance(self.elsewhere, Executions) else None

    @property
    def services(self) -> tuple[str, ...]:
        """Services that the consumer calls for this processor: the ends of their endpoints' names."""
        return self.elsewhere.services if self.elsewhere else ()

    @property
    def handler(self) -> str:
        """The consumer's handler. It is in the layer or image, and an inline module imports it from there."""
        if self.is_elsewhere:
            return "index.handler"
        module = "consumer.managed_instances" if self.capacity_provider else "consumer"
        return f"intake_ledger.{module}.handler"

    @property
    def ephemeral_storage(self) -> Size | None:
        """The size of `/tmp`; None for Lambda's default."""
        size = self.ephemeral_storage_size
        return None if size == DEFAULT_STORAGE else Size.mebibytes(size)

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that tell the consumer which processor to call."""
        if self.elsewhere is not None:
            return self.elsewhere.settings
        own = environment_of(
            ConsumerSettings,
            processor=self.entrypoint,
            max_per_call=self.max_per_call if self.max_per_call > 1 else None,
        )
        return own | self.environment

    @property
    def function_timeout(self) -> Duration | None:
        """The timeout of the existing function; None if it is not known at synthesis."""
        function = self.function
        if isinstance(function, lambda_.Alias):
            function = function.version
        if isinstance(function, lambda_.Version):
            function = function.lambda_
        if isinstance(function, lambda_.Function):
            return function.timeout or Duration.seconds(3)  # Lambda's own default
        return None

    @property
    def code(self) -> lambda_.Code | lambda_.DockerImageCode:
        """New code for each pipeline. CDK binds an asset to the first stack that uses it."""
        return self._make_code()

    def argument_problems(self, wanted: str) -> tuple[Problem, ...]:
        """A function that is written for another kind of work. It would fail at each call.

        Args:
            wanted: the name of the type that this kind of work passes.

        """
        found = self._folder.argument_type if self._folder else None
        if self.max_per_call > 1:
            wanted = f"Sequence[{wanted}]"
        if found == wanted or found not in ARGUMENT_TYPES:
            return ()
        return (FUNCTION_ARGUMENT_TYPE.problem(entrypoint=self.entrypoint, found=found, wanted=wanted),)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why the processor cannot work. The pipeline reports them with its other problems."""
        return (
            *self._problems,
            *(self._folder.problems if self._folder else ()),
            *environment_problems(self.environment),
            *runtime_problems(self.runtime, managed=self.capacity_provider is not None),
            *version_problems(self.processor_version),
        )
