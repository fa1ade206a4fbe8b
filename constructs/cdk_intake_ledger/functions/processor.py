"""The processor: your function, its code, and the memory and storage of the consumer that runs it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration, Size
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling import ProcessorFolder, form_problem
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME
from cdk_intake_ledger.functions.processor_image import image_of, image_problem
from cdk_intake_ledger.functions.processor_problems import (
    environment_problems,
    layer_problems,
    runtime_problems,
    storage_problems,
)
from cdk_intake_ledger.validation.limits import DEFAULT_STORAGE
from cdk_intake_ledger.validation.processor_rules import CODE_IS_IMAGE
from cdk_intake_ledger.validation.registry import Problem

# The layer has all code, but Lambda requires a function to have some.
CONSUMER_CODE = "from intake_ledger.consumer import handler\n"


class Processor:
    """Your function `process(change)` and its code.

    Make it with `from_asset`, `from_code` or `from_image`. `from_function` uses an existing Lambda function in any
    language. The default architecture is arm64, which costs a fifth less.
    """

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
        function: lambda_.IFunction | None = None,
    ) -> None:
        """Describe a processor. Use `from_asset`, `from_code`, `from_image` or `from_function` instead.

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
            function: an existing function to invoke; the processor is the code itself when omitted.

        """
        self._make_code = make_code
        self._problems = tuple(problems)
        self.entrypoint = entrypoint
        """`module:function`; empty if the processor is an existing function."""
        self.function = function
        """The existing function, or None."""
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
    ) -> "Processor":
        """Take a folder of Python modules, and install the wheels of its `requirements.txt` if it has one.

        Synthesis installs the wheels for the function's Python version and architecture, with pip and without Docker,
        from the package index of pip's configuration. It installs each set of pins once and keeps it in a cache
        (`$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`). Each line needs `==` or
        a hash, as `uv pip compile`, `uv export` and `pip-compile` write them. boto3 and Lambda's other modules may stay
        unpinned. Lambda's own version is then used.

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
        )
        folder = processor._folder = ProcessorFolder(
            Path(path),
            entrypoint,
            python="" if runtime_problems(processor.runtime) else processor.runtime.name.removeprefix("python"),
            architecture=processor.architecture.name,
            any_module=bool(layers) or "PYTHONPATH" in processor.environment,
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

        Returns:
            the processor. The pipeline reports its problems.

        """
        problem = form_problem(entrypoint)
        if isinstance(code, lambda_.DockerImageCode):
            problem = CODE_IS_IMAGE.problem()
        return cls(
            lambda: code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
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
    ) -> "Processor":
        """Take a container image with the processor and the runtime, for code of more than 250 MB or with programs that
        are not in a wheel.

        Lambda attaches no layers to images, so the Dockerfile installs the runtime: see docs/dependencies.md. `pip
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
            problems=[problem for problem in problems if problem],
        )

    @classmethod
    def from_function(cls, function: lambda_.IFunction) -> "Processor":
        """Take an existing function, version or alias in any language.

        The function receives a change as JSON and returns `{"commit": "id"}` or `{"unprocessable": "why"}`: see
        docs/processor-json.md. It reads the object itself, with its own role. The pipeline may invoke only this
        function. The function's timeout must be at least 10 seconds shorter than the pipeline's `processing_timeout`.
        Synthesis cannot check this for an imported function.

        Args:
            function: a function of the same account and region.

        Returns:
            the processor.

        """
        return cls(lambda: lambda_.Code.from_inline(CONSUMER_CODE), entrypoint="", memory_size=256, function=function)

    @property
    def handler(self) -> str:
        """The consumer's handler. It is in the layer or image, and an inline module imports it from there."""
        return "intake_ledger.consumer.handler" if self.function is None else "index.handler"

    @property
    def ephemeral_storage(self) -> Size | None:
        """The size of `/tmp`; None for Lambda's default."""
        size = self.ephemeral_storage_size
        return None if size == DEFAULT_STORAGE else Size.mebibytes(size)

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that tell the consumer which processor to call."""
        if self.function is None:
            return {"INTAKE_PROCESSOR": self.entrypoint} | self.environment
        return {"INTAKE_PROCESSOR_FUNCTION": self.function.function_arn}

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

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why the processor cannot work. The pipeline reports them with its other problems."""
        return (
            *self._problems,
            *(self._folder.problems if self._folder else ()),
            *environment_problems(self.environment),
            *runtime_problems(self.runtime),
            *layer_problems(self.layers),
            *storage_problems(self.ephemeral_storage_size),
        )
