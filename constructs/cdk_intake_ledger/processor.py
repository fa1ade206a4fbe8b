"""The team's own code, and how much machine it gets."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aws_cdk import Duration, IgnoreMode, Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.entrypoint import entrypoint_problems, form_problem

LEAST_PYTHON = (3, 12)

# Nothing of these runs in Lambda, and each would change the asset's hash from one machine to the next.
NOT_CODE = ("__pycache__/", "*.pyc", ".*", "*.egg-info/")

# All of it is in the layer; Lambda wants some code beside it.
CONSUMER_CODE = "from intake_ledger.consumer import handler\n"

OURS = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")


class Processor:
    """A function `process(change)` of the team's, with the code that holds it (`from_asset`, `from_code`), or a Lambda
    function that exists already, in any language (`from_function`).

    It runs on arm64 when nothing else is asked for: the same work for a fifth less money, and the runtime itself is
    pure Python. Code with compiled modules has to be bundled for the architecture that is stated here.
    """

    def __init__(
        self,
        make_code: Callable[[], lambda_.Code],
        *,
        entrypoint: str,
        memory_size: int = 512,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
        problems: Sequence[str] = (),
        function: lambda_.IFunction | None = None,
    ) -> None:
        self._make_code = make_code
        self._found = tuple(problems)
        self.entrypoint = entrypoint
        self.function = function
        self.memory_size = memory_size
        self.environment = dict(environment or {})
        self.runtime = runtime or lambda_.Runtime.PYTHON_3_13
        self.architecture = architecture or lambda_.Architecture.ARM_64
        self.layers = tuple(layers)

    @classmethod
    def from_asset(
        cls,
        path: str | Path,
        *,
        entrypoint: str,
        memory_size: int = 512,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
    ) -> "Processor":
        """A directory of Python modules as it is; dependencies other than boto3 and Powertools have to be in it, or in
        a layer.

        The source is read at synthesis (not imported): a directory, module or function that does not exist is refused,
        with what is there instead.

        Args:
            path: the directory, relative to where synthesis runs, or absolute.
            entrypoint: `module:function`, such as `invoices:process`.
            memory_size: MiB, and CPU in proportion; 512 when omitted.
            environment: variables of the function; names that begin with INTAKE_ are the pipeline's own.
            runtime: Python 3.13 when omitted; 3.12 at least.
            architecture: arm64 when omitted.
            layers: beside the pipeline's own; at most four.

        """
        directory = Path(path)
        return cls(
            lambda: lambda_.Code.from_asset(str(directory), exclude=list(NOT_CODE), ignore_mode=IgnoreMode.GIT),
            entrypoint=entrypoint,
            memory_size=memory_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
            problems=tuple(entrypoint_problems(directory, entrypoint)),
        )

    @classmethod
    def from_code(
        cls,
        code: lambda_.Code,
        *,
        entrypoint: str,
        memory_size: int = 512,
        environment: Mapping[str, str] | None = None,
        runtime: lambda_.Runtime | None = None,
        architecture: lambda_.Architecture | None = None,
        layers: Sequence[lambda_.ILayerVersion] = (),
    ) -> "Processor":
        """Any code that Lambda can run Python from, bundled by the team as it likes; only the form of the entry point
        is checked.

        The other options are those of `from_asset`.
        """
        wrong = form_problem(entrypoint)
        return cls(
            lambda: code,
            entrypoint=entrypoint,
            memory_size=memory_size,
            environment=environment,
            runtime=runtime,
            architecture=architecture,
            layers=layers,
            problems=(wrong,) if wrong else (),
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
        """Of the consumer, which is in the layer; an inline module can only hand it on."""
        return "intake_ledger.consumer.handler" if self.function is None else "index.handler"

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
    def code(self) -> lambda_.Code:
        """The code, anew for each pipeline, since CDK ties an asset to the first stack that uses it."""
        return self._make_code()

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps this processor from running, for the pipeline to report together with everything else."""
        return (*self._found, *self._environment_problems(), *self._runtime_problems(), *self._layer_problems())

    def _environment_problems(self) -> list[str]:
        taken = [name for name in self.environment if name.startswith(OURS)]
        return [
            f"processor environment has {name!r}: the pipeline sets it itself, choose another name" for name in taken
        ]

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
