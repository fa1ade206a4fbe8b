"""The layer that holds what runs in Lambda: our own package and Powertools, taken from where they are installed.

Neither Docker nor a network is needed at synthesis. Only `*.py` goes in, under file modes and names that do not depend
on the machine, so that a checkout, an editable install and a wheel give the same asset.
"""

import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

PACKAGE = "intake_ledger"

# Powertools whole, although we use its logger and metrics alone: a pruned copy failed at import. The others are what
# it imports itself; all are pure Python.
DISTRIBUTIONS = ("aws-lambda-powertools", "jmespath", "typing_extensions")

TESTED_RUNTIME = lambda_.Runtime.PYTHON_3_13
"""What the functions run on unless the processor asks for another; the tests run on it."""


def runtime_layer(scope: Construct, id: str) -> lambda_.LayerVersion:
    """A layer version with the runtime, for every Python that the runtime knows and for both architectures."""
    return lambda_.LayerVersion(
        scope,
        id,
        description="Intake ledger: consumer and audit, with Powertools for AWS Lambda",
        code=lambda_.Code.from_asset(
            str(_package_root()),
            asset_hash_type=AssetHashType.OUTPUT,
            bundling=BundlingOptions(image=DockerImage.from_registry("never-used"), local=_Staging()),
        ),
        compatible_runtimes=[lambda_.Runtime.PYTHON_3_12, TESTED_RUNTIME, lambda_.Runtime.PYTHON_3_14],
        compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
    )


def stage(target: Path) -> None:
    """Write the layer's content to `target`: `python/` with the packages in it."""
    for source, name in sorted(_sources(), key=lambda pair: pair[1].as_posix()):
        destination = target / "python" / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, destination)
        destination.chmod(0o644)


@jsii.implements(ILocalBundling)
class _Staging:
    # Releases of jsii differ in whether the options come as one argument or as keywords; none of them matters here.
    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        stage(Path(output_dir))
        return True


def _package_root() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the package {PACKAGE} is not installed beside cdk_intake_ledger: reinstall cdk-intake-ledger"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _sources() -> Iterator[tuple[Path, Path]]:
    root = _package_root()
    for path in root.rglob("*.py"):
        yield path, PACKAGE / path.relative_to(root)
    for name in DISTRIBUTIONS:
        yield from _distribution_sources(name)


def _distribution_sources(name: str) -> Iterator[tuple[Path, Path]]:
    try:
        installed = distribution(name)
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"the distribution {name} is not installed: reinstall cdk-intake-ledger with its dependencies"
        ) from error
    files = [file for file in installed.files or () if file.suffix == ".py" and ".." not in file.parts]
    if not files:
        raise ModuleNotFoundError(
            f"the distribution {name} lists no Python files, as an editable install does: install it from a wheel"
        )
    for file in files:
        yield Path(str(file.locate())), Path(*file.parts)
