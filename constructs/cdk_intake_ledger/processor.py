"""The team's own code, and how much machine it gets."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aws_cdk import IgnoreMode, Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.entrypoint import entrypoint_problems, form_problem

LEAST_PYTHON = (3, 12)

# Nothing of these runs in Lambda, and each would change the asset's hash from one machine to the next.
NOT_CODE = ("__pycache__/", "*.pyc", ".*", "*.egg-info/")

OURS = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")


class Processor:
    """A function `process(change)` of the team's, with the code that holds it. Made by `from_asset` or `from_code`.

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
    ) -> None:
        self._make_code = make_code
        self._found = tuple(problems)
        self.entrypoint = entrypoint
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
