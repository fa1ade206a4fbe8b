"""The processor: your function, or an existing function, state machine or durable function."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger.bundling.entrypoint import form_problem
from cdk_intake_ledger.bundling.processor_folder import ProcessorFolder
from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.limits import DEFAULT_STORAGE
from cdk_intake_ledger.functions.durable_function import DurableExecutions
from cdk_intake_ledger.functions.processor_base import ProcessorBase
from cdk_intake_ledger.functions.processor_image import image_of, image_problem
from cdk_intake_ledger.functions.processor_problems import runtime_problems
from cdk_intake_ledger.functions.remote_function import RemoteFunction, WorkElsewhere
from cdk_intake_ledger.functions.state_machine import MachineExecutions

# The layer has all code, but Lambda requires a function to have some.
CONSUMER_CODE = "from intake_ledger.consumer import handler\n"


@check_arguments
class Processor(ProcessorBase):
    """Your function `process(change)` and its code.

    Make it with `from_asset`, `from_code` or `from_image`. `from_function` uses an existing Lambda function in any
    language. `from_state_machine` and `from_durable_function` use an existing state machine or durable function, for
    work that takes hours or days. The default architecture is arm64, which costs a fifth less.
    """

    @classmethod
    def from_asset(
        cls,
        path: str | Path,
        *,
        entrypoint: str,
        memory_size: int = 512,
        ephemeral_storage_size: int = DEFAULT_STORAGE,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
        capacity_provider: lambda_.ICapacityProvider | None = None,
        max_per_call: int = 1,
    ) -> "Processor":
        """Take a folder of Python modules, and install the wheels of its `requirements.txt` if it has one.

        Synthesis installs the wheels for the function's Python version and architecture, with uv and without Docker,
        from the package index of pip's configuration, or of uv's if pip has none. It installs each set of pins once and
        keeps it in a cache (`$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`).
        Each line needs `==` or a hash, as `uv pip compile`, `uv export` and `pip-compile` write them. boto3 and
        Lambda's other modules may stay unpinned. Lambda's own version is then used.

        Synthesis reads the source and does not import it. It refuses a folder, module or function that does not exist,
        and an import that neither the folder, its wheels nor Lambda has. It does not check imports under `if` or `try`.
        If there are `layers`, or the code changes `sys.path`, it checks no imports.

        Args:
            path: the folder, absolute or relative to the current directory of the synthesis.
            entrypoint: `module:function`, such as `invoices:process`.
            memory_size: memory in MiB, 128 to 10,240, with CPU in proportion; 512 when omitted.
            ephemeral_storage_size: size of `/tmp` in MiB, 512 to 10,240, which `ObjectChange.download()` uses; 512 when
                omitted.
            environment: environment variables of the function; none when omitted. The pipeline sets names that begin
                with `INTAKE_`. Do not put secrets here: each principal that may read the function sees them.
            runtime: Python 3.12 or later; Python 3.13 when omitted.
            architecture: the function's architecture; arm64 when omitted.
            layers: at most 4 layers of yours; none when omitted. Lambda allows 5, and the pipeline has one.
            capacity_provider: runs the function on Lambda Managed Instances, for processors that take up to 90 minutes:
                see docs/long-work.md; Lambda's own capacity when omitted.
            max_per_call: the largest number of changes in one call, 1 to 100. Above 1, your function takes a list of
                changes, and returns a dictionary with a result for the `idempotency_key` of each one: see
                docs/outputs.md. Use it for one write downstream for many small files or messages; 1 when omitted.

        Returns:
            the processor. The pipeline reports its problems.

        """
        processor = cls(
            lambda: folder.code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
            capacity_provider=capacity_provider,
            max_per_call=max_per_call,
        )
        folder = processor._folder = ProcessorFolder(
            Path(path),
            entrypoint,
            python="" if runtime_problems(processor.runtime) else processor.runtime.name.removeprefix("python"),
            architecture=processor.architecture.name,
            any_module=bool(layers) or "PYTHONPATH" in processor.environment,
            returns_commit=max_per_call == 1,
        )
        return processor

    @classmethod
    def from_code(
        cls,
        code: lambda_.Code,
        *,
        entrypoint: str,
        memory_size: int = 512,
        ephemeral_storage_size: int = DEFAULT_STORAGE,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
        capacity_provider: lambda_.ICapacityProvider | None = None,
        processor_version: str | None = None,
        max_per_call: int = 1,
    ) -> "Processor":
        """Take code that you bundled yourself. Synthesis checks only the form of the entry point.

        For a container image, use `from_image`.

        Args:
            code: a `lambda_.Code`, such as an asset with your own bundling. CDK binds it to the first stack.
            entrypoint: `module:function` in the code.
            memory_size: memory in MiB, 128 to 10,240, with CPU in proportion; 512 when omitted.
            ephemeral_storage_size: size of `/tmp` in MiB, 512 to 10,240, which `ObjectChange.download()` uses; 512 when
                omitted.
            environment: as for `from_asset`; none when omitted.
            runtime: Python 3.12 or later; Python 3.13 when omitted.
            architecture: architecture of the function and of compiled modules in the code; arm64 when omitted.
            layers: as for `from_asset`; none when omitted.
            capacity_provider: as for `from_asset`; Lambda's own capacity when omitted.
            processor_version: the version of the code, for `intake-ledger retry --again --processor-version`: 1 to 12
                visible ASCII characters, such as the first 12 of a commit's hash. When omitted, it is the hash of
                an asset or of inline code. Other code, such as that of a bucket, has none then.
            max_per_call: as for `from_asset`; 1 when omitted.

        Returns:
            the processor. The pipeline reports its problems.

        """
        problem = form_problem(entrypoint)
        return cls(
            lambda: code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
            capacity_provider=capacity_provider,
            max_per_call=max_per_call,
            processor_version=processor_version,
            problems=(problem,) if problem else (),
        )

    @classmethod
    def from_image(
        cls,
        image: str | Path | lambda_.DockerImageCode,
        *,
        entrypoint: str,
        architecture: lambda_.Architecture,
        memory_size: int = 512,
        ephemeral_storage_size: int = DEFAULT_STORAGE,
        environment: Mapping[str, str] | None = None,
        capacity_provider: lambda_.ICapacityProvider | None = None,
        processor_version: str | None = None,
        max_per_call: int = 1,
    ) -> "Processor":
        """Take a container image with the processor and the runtime, for code of more than 250 MB or with programs that
        are not in a wheel.

        Lambda attaches no layers to images, so the Dockerfile installs the runtime: see docs/processor.md. `pip
        install --no-deps` of this library's wheel installs it without the CDK. The pipeline sets the image's command.
        Synthesis checks only the form of the entry point, and needs no Docker engine: the CDK CLI builds the image at
        deployment.

        Args:
            image: a folder with a `Dockerfile`, or a `lambda_.DockerImageCode` for an image in a repository or with
                your own build options. Images are built for `architecture`. The build of a folder has this library's
                version in the argument `INTAKE_LEDGER_VERSION`. In other images, install the same version yourself.
            entrypoint: `module:function` in the image.
            architecture: architecture of the image. It is required, since a wrong one fails only at the first event.
            memory_size: memory in MiB, 128 to 10,240, with CPU in proportion; 512 when omitted.
            ephemeral_storage_size: size of `/tmp` in MiB, 512 to 10,240, which `ObjectChange.download()` uses; 512 when
                omitted.
            environment: as for `from_asset`; none when omitted.
            capacity_provider: as for `from_asset`; Lambda's own capacity when omitted.
            processor_version: the version of the code, for `intake-ledger retry --again --processor-version`: 1 to 12
                visible ASCII characters, such as the first 12 of a commit's hash. When omitted, it is the hash of
                an image that the CDK builds. An image of a repository has none then.
            max_per_call: as for `from_asset`; 1 when omitted.

        Returns:
            the processor. The pipeline reports its problems.

        """
        problems = [form_problem(entrypoint)]
        if not isinstance(image, lambda_.DockerImageCode):
            problems.append(image_problem(Path(image)))
        return cls(
            lambda: image if isinstance(image, lambda_.DockerImageCode) else image_of(Path(image)),
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            architecture=architecture,
            capacity_provider=capacity_provider,
            max_per_call=max_per_call,
            processor_version=processor_version,
            problems=[problem for problem in problems if problem],
        )

    @classmethod
    def from_function(
        cls, function: lambda_.IFunction | lambda_.FunctionBase, *, processor_version: str | None = None
    ) -> "Processor":
        """Take an existing function, version or alias in any language.

        The function receives a change as JSON and returns `{"commit": "id"}` or `{"unprocessable": "why"}`: see
        docs/processor.md. It reads the object itself, with its own role. The pipeline may invoke only this
        function. The function's timeout must be at least 10 seconds shorter than the pipeline's `processing_timeout`.
        Synthesis cannot check this for an imported function.

        Args:
            function: a function of the same account and region.
            processor_version: the version of the code, for `intake-ledger retry --again --processor-version`: 1 to 12
                visible ASCII characters, such as the first 12 of a commit's hash. Change it with each deployment
                of the function. Commits record none when it is omitted.

        Returns:
            the processor.

        """
        return cls._of(RemoteFunction(function=function), processor_version)

    @classmethod
    def _of(cls, elsewhere: WorkElsewhere, processor_version: str | None) -> "Processor":
        """A processor whose consumer has none of its code."""
        return cls(
            lambda: lambda_.Code.from_inline(CONSUMER_CODE),
            entrypoint="",
            memory_size=256,
            elsewhere=elsewhere,
            processor_version=processor_version,
        )

    @classmethod
    def from_state_machine(
        cls,
        machine: sfn.IStateMachine,
        *,
        timeout: Duration | None = None,
        longest_task: Duration | None = None,
        stop_overtaken: bool = False,
        processor_version: str | None = None,
    ) -> "Processor":
        """Take an existing state machine of Step Functions, for work that takes hours.

        The pipeline starts one execution for each attempt, and its function ends. The execution receives a change as
        JSON. Its output is the outcome, as for `from_function`: see docs/long-work.md. The pipeline asks Step Functions
        how the execution ended. An event of EventBridge only tells it when to ask.

        The machine reads the object itself: `pipeline.bucket.grant_read(task_role)`. The pipeline may start this
        machine and describe its executions. It may never redrive them.

        Args:
            machine: a STANDARD state machine of the same account and region. Set its own `timeout` too.
            timeout: the limit of an execution, 1 second to 365 days, at least the machine's own; 6 hours when omitted.
            longest_task: the time for which a task may still run, and write, after its execution was aborted or timed
                out. No other attempt starts within it. 1 second to 365 days; `timeout` when omitted.
            stop_overtaken: whether to stop an execution when a newer version of its object is to be processed, or with
                `deletes` its removal. The newer one begins `longest_task` after the stop. The stopped one spends no
                attempt. Only for an `IntakePipeline` with the ordering LATEST, and with a `longest_task` that is
                shorter than `timeout`. A key that is overwritten more often than an execution takes is processed when
                the uploads pause. Each execution runs to its end when omitted.
            processor_version: the version of the code, for `intake-ledger retry --again --processor-version`: 1 to 12
                visible ASCII characters, such as the first 12 of a commit's hash. Change it with each deployment
                of the machine. An execution that ends after the deployment records the new one. Commits record none
                when it is omitted.

        Returns:
            the processor. The pipeline reports its problems.

        """
        limit = timeout or Duration.hours(6)
        executions = MachineExecutions(
            machine=machine, timeout=limit, task_timeout=longest_task or limit, stop_overtaken=stop_overtaken
        )
        return cls._of(executions, processor_version)

    @classmethod
    def from_durable_function(
        cls,
        function: lambda_.IFunction | lambda_.FunctionBase,
        *,
        timeout: Duration,
        stop_overtaken: bool = False,
        processor_version: str | None = None,
    ) -> "Processor":
        """Take a version or an alias of an existing durable function, for work that waits for hours or days.

        The pipeline starts one durable execution for each attempt, and its function ends. The execution receives a
        change as JSON. Its result is the outcome, as for `from_function`: see docs/long-work.md. The pipeline asks
        Lambda how the execution ended.

        The function reads the object itself: `pipeline.bucket.grant_read(fn)`. The pipeline may invoke this version or
        alias, and describe the executions of the function.

        Args:
            function: a version or an alias of the same account and region, such as `fn.current_version`. Give the
                function `current_version_options` with `RemovalPolicy.RETAIN`: an execution needs its version until its
                end.
            timeout: the limit of an execution, 1 second to 365 days, at least the function's own `execution_timeout`.
            stop_overtaken: as for `from_state_machine`, with the function's timeout as `longest_task`. Each execution
                runs to its end when omitted.
            processor_version: the version of the code, for `intake-ledger retry --again --processor-version`: 1 to 12
                visible ASCII characters, such as the first 12 of a commit's hash. Change it with each deployment
                of the function. An execution that ends after the deployment records the new one. Commits record none
                when it is omitted.

        Returns:
            the processor. The pipeline reports its problems.

        """
        executions = DurableExecutions(function=function, timeout=timeout, stop_overtaken=stop_overtaken)
        return cls._of(executions, processor_version)
