"""The team's own code, and how much machine it gets."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aws_cdk import Duration, Size, Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling import ProcessorFolder, form_problem
from cdk_intake_ledger.functions.runtime_layer import TESTED_RUNTIME

LEAST_PYTHON = (3, 12)
DEFAULT_STORAGE, MOST_STORAGE = 512, 10_240
"""MiB of `/tmp` that each function has, and that it can have."""

# All of it is in the layer; Lambda wants some code beside it.
CONSUMER_CODE = "from intake_ledger.consumer import handler\n"

OURS = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")


class Processor:
    """A function `process(change)` of the team's, with the code that holds it (`from_asset`, `from_code`,
    `from_image`), or a Lambda function that exists already, in any language (`from_function`).

    It runs on arm64 when nothing else is asked for: the same work for a fifth less money, and the runtime itself is
    pure Python. `from_asset` installs the wheels of a `requirements.txt` for the architecture that is stated here.
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
        problems: Sequence[str] = (),
        function: lambda_.IFunction | None = None,
    ) -> None:
        """Describe a processor. Use one of the four ways to make one.

        Args:
            make_code: gives the code, anew for each pipeline.
            entrypoint: `module:function`.
            memory_size: as for `from_asset`; 512 when omitted.
            ephemeral_storage_size: as for `from_asset`; 512 when omitted.
            environment: as for `from_asset`; none when omitted.
            runtime: as for `from_asset`; Python 3.13 when omitted.
            architecture: as for `from_asset`; arm64 when omitted.
            layers: as for `from_asset`; none when omitted.
            problems: what is wrong with it already, for the pipeline to report; nothing when omitted.
            function: an existing function to invoke; the code itself is the processor when omitted.

        """
        self._make_code = make_code
        self._found = tuple(problems)
        self.entrypoint = entrypoint
        """`module:function`; empty where an existing function is the processor."""
        self.function = function
        """The existing function, if there is one."""
        self.memory_size = memory_size
        """MiB of the consumer's function."""
        self.ephemeral_storage_size = ephemeral_storage_size
        """MiB of its `/tmp`."""
        self.environment = dict(environment or {})
        """The team's own variables."""
        self.runtime = runtime or TESTED_RUNTIME
        """The consumer's."""
        self.architecture = architecture or lambda_.Architecture.ARM_64
        """The consumer's."""
        self.layers = tuple(layers)
        """The team's own, beside the pipeline's."""
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
        """A directory of Python modules, with the wheels of its `requirements.txt`, if it has one.

        The wheels are installed at synthesis, for the function's Python and architecture, without Docker: by pip, from
        the package index that it is configured with. Each set of pins is installed once and then kept in a cache
        (`$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`). Each line needs `==`
        or a hash, as `uv pip compile`, `uv export` and `pip-compile` write them. boto3 and the rest of Lambda's own
        modules may stay unpinned: they are then left to Lambda. Without a `requirements.txt` the directory goes to
        Lambda as it is.

        The source is read at synthesis (not imported). Synthesis refuses a directory, module or function that does not
        exist, with the names that do, and an import that neither the directory, its wheels nor Lambda has. Imports
        under `if` or `try` are not checked, and none are if there are `layers` or the code changes `sys.path`.

        Args:
            path: the directory, relative to where synthesis runs, or absolute.
            entrypoint: `module:function`, such as `invoices:process`.
            memory_size: MiB, 128 to 10,240, and CPU in proportion; 512 when omitted.
            ephemeral_storage_size: MiB of `/tmp`, 512 to 10,240; `ObjectChange.download()` uses it; 512 when omitted.
            environment: variables of the function; none when omitted. Names that begin with `INTAKE_` are the
                pipeline's own. They are no place for secrets: whoever may look at the function sees them.
            runtime: Python 3.13 when omitted; 3.12 at least.
            architecture: arm64 when omitted.
            layers: beside the pipeline's own, at most four (Lambda allows five); none when omitted.

        """
        made = cls(
            lambda: folder.code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
        )
        folder = made._folder = ProcessorFolder(
            Path(path),
            entrypoint,
            python="" if made._runtime_problems() else made.runtime.name.removeprefix("python"),
            architecture=made.architecture.name,
            any_module=bool(layers) or "PYTHONPATH" in made.environment,
        )
        return made

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
        """Any code that Lambda can run Python from, bundled by the team as it likes; only the form of the entry point
        is checked. A container image is for `from_image`.

        Args:
            code: one `lambda_.Code`, such as an asset with a bundling of its own; CDK ties it to the first stack.
            entrypoint: `module:function`, as Lambda will find it in the code.
            memory_size: MiB, 128 to 10,240, and CPU in proportion; 512 when omitted.
            ephemeral_storage_size: MiB of `/tmp`, 512 to 10,240; `ObjectChange.download()` uses it; 512 when omitted.
            environment: as for `from_asset`; none when omitted.
            runtime: Python 3.13 when omitted; 3.12 at least.
            architecture: arm64 when omitted; compiled modules in the code have to fit.
            layers: as for `from_asset`; none when omitted.

        """
        wrong = form_problem(entrypoint)
        if isinstance(code, lambda_.DockerImageCode):
            wrong = "processor code is a container image: give it to Processor.from_image, which attaches no layer"
        return cls(
            lambda: code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
            problems=(wrong,) if wrong else (),
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
        """A container image with the processor and the runtime in it, for code of more than 250 MB, or for programs
        that are not in a wheel.

        Lambda attaches no layers to images, so the Dockerfile installs the runtime, as docs/dependencies.md shows. It
        is in the wheel of this library, which brings nothing of the CDK with `pip install --no-deps`. The image's
        command is set here. Only the form of the entry point is checked. Synthesis needs no Docker engine: the CDK's
        CLI builds the image when it deploys.

        Args:
            image: a folder with a `Dockerfile`, or a `lambda_.DockerImageCode` for an image in a repository or with
                options of yours. Images are built for `architecture`. The build of a folder has the version of this
                library in the argument `INTAKE_LEDGER_VERSION`. In any other image, keep the release of the runtime the
                same as that of this library.
            entrypoint: `module:function`, as Python will find it in the image.
            architecture: of the image. It has no default, since a wrong one fails at the first event only.
            memory_size: MiB, 128 to 10,240, and CPU in proportion; 512 when omitted.
            ephemeral_storage_size: MiB of `/tmp`, 512 to 10,240; `ObjectChange.download()` uses it; 512 when omitted.
            environment: as for `from_asset`; none when omitted.

        """
        wrong = [form_problem(entrypoint)]
        if not isinstance(image, lambda_.DockerImageCode):
            wrong.append(_image_problem(Path(image)))
        return cls(
            lambda: image if isinstance(image, lambda_.DockerImageCode) else _image_of(Path(image)),
            entrypoint=entrypoint,
            memory_size=memory_size,
            ephemeral_storage_size=ephemeral_storage_size,
            environment=environment,
            architecture=architecture,
            problems=[one for one in wrong if one],
        )

    @classmethod
    def from_function(cls, function: lambda_.IFunction) -> "Processor":
        """An existing function, version or alias, in any language: it is given a change as JSON and returns
        `{"commit": "id"}` or `{"unprocessable": "why"}`, as docs/processor-json.md has it. It reads the object itself.

        The pipeline may invoke exactly this function; what the function needs, its own role is granted. Its timeout has
        to be at least ten seconds shorter than the pipeline's `processing_timeout`, and must be seen to by whoever
        imports a function.

        Args:
            function: of the same account and region.

        """
        return cls(lambda: lambda_.Code.from_inline(CONSUMER_CODE), entrypoint="", memory_size=256, function=function)

    @property
    def handler(self) -> str:
        """The consumer's. It is in the layer or image; an inline module can only hand it on."""
        return "intake_ledger.consumer.handler" if self.function is None else "index.handler"

    @property
    def ephemeral_storage(self) -> Size | None:
        """The size of `/tmp`; None for what each function has."""
        size = self.ephemeral_storage_size
        return None if size == DEFAULT_STORAGE else Size.mebibytes(size)

    @property
    def settings(self) -> dict[str, str]:
        """The variables by which the consumer finds it."""
        if self.function is None:
            return {"INTAKE_PROCESSOR": self.entrypoint} | self.environment
        return {"INTAKE_PROCESSOR_FUNCTION": self.function.function_arn}

    @property
    def function_timeout(self) -> Duration | None:
        """How long the existing function may run; None where that is not known here."""
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
        """The code, made for each pipeline, since CDK ties an asset to the first stack that uses it."""
        return self._make_code()

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this processor from running, for the pipeline to report together with everything else."""
        return (
            *self._found,
            *(self._folder.problems if self._folder else ()),
            *self._environment_problems(),
            *self._runtime_problems(),
            *self._layer_problems(),
            *self._storage_problems(),
        )

    def _environment_problems(self) -> list[str]:
        taken = [name for name in self.environment if name.startswith(OURS)]
        return [
            f"processor environment has {name!r}: the pipeline sets it itself, choose another name" for name in taken
        ]

    def _storage_problems(self) -> list[str]:
        size = self.ephemeral_storage_size
        if Token.is_unresolved(size) or DEFAULT_STORAGE <= size <= MOST_STORAGE:
            return []
        return [f"processor ephemeral_storage_size is {size:,}: give 512 to 10,240, in MiB, the range of Lambda"]

    def _runtime_problems(self) -> list[str]:
        name = self.runtime.name
        if Token.is_unresolved(name):
            return []
        version = name.removeprefix("python").split(".")
        if name.startswith("python") and tuple(int(part) for part in version if part.isdigit()) >= LEAST_PYTHON:
            return []
        return [f"processor runtime is {name!r}: the consumer is Python, give lambda_.Runtime.PYTHON_3_12 or later"]

    def _layer_problems(self) -> list[str]:
        if len(self.layers) <= 4:
            return []
        return [
            f"processor has {len(self.layers)} layers: Lambda allows five, and one is the pipeline's, give at most 4"
        ]


def _image_problem(folder: Path) -> str | None:
    if not folder.exists():
        return (
            f"processor image '{folder}' does not exist (looked from '{Path.cwd()}'): give the folder that has its "
            "Dockerfile"
        )
    if not (folder / "Dockerfile").is_file():
        return (
            f"processor image '{folder}' has no Dockerfile: give the folder that has one, or a lambda_.DockerImageCode"
        )
    return None


def _image_of(folder: Path) -> lambda_.DockerImageCode:
    try:
        arguments = {"INTAKE_LEDGER_VERSION": version("cdk-intake-ledger")}
    except PackageNotFoundError:  # run from the sources
        arguments = {}
    # The CDK builds it for the function's architecture.
    return lambda_.DockerImageCode.from_image_asset(str(folder), build_args=arguments)
