"""The layer with the runtime: this library's package and Powertools.

Synthesis needs neither Docker nor a network. A wheel contains the layer as an archive (hatch_build.py), with byte code.
A checkout assembles it from the installed packages: only `*.py` and `*.sql` files, with modes, times and names that do
not depend on the machine. It is written as an archive into the cloud assembly, so that the CDK does not copy and hash
400 files.
"""

import os
import stat
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from aws_cdk import Stack, Stage
from aws_cdk import aws_lambda as lambda_

PACKAGE = "intake_ledger"
# All of Powertools, although the runtime uses its logger and metrics only: a pruned copy failed at import. Lambda has
# its dependency jmespath, with byte code, so a cold start does not compile it.
MODULES = (PACKAGE, "aws_lambda_powertools", "typing_extensions")
RUNTIME_LAYER = "IntakeLedgerRuntime"
"""The ID of the layer below its stack."""
BUILT = Path(__file__).with_name("runtime_layer.zip")
"""The layer of a wheel. A checkout has none, so that its edits count."""
_KINDS = (".py", ".sql")
_UNIX = 3
"""The ZIP format's number of the system that made an entry."""

TESTED_RUNTIME = lambda_.Runtime.PYTHON_3_13
"""The default runtime of the functions. The tests use it too."""


def runtime_layer(stack: Stack) -> lambda_.LayerVersion:
    """The layer version with the runtime, for all supported Python versions and both architectures.

    All functions of a stack share it: a stack has at most 500 resources, and each version of the layer needs 3 MB of
    the account's quota of code. A nested stack has its own.

    Args:
        stack: the stack of the functions.

    """
    found = stack.node.try_find_child(RUNTIME_LAYER)
    if isinstance(found, lambda_.LayerVersion):
        return found
    content = archive()
    digest = sha256(content).hexdigest()
    return lambda_.LayerVersion(
        stack,
        RUNTIME_LAYER,
        description="Intake ledger: consumer and audit, with Powertools for AWS Lambda",
        code=lambda_.Code.from_asset(_staged(stack, content, digest), asset_hash=digest),
        compatible_runtimes=[lambda_.Runtime.PYTHON_3_12, TESTED_RUNTIME, lambda_.Runtime.PYTHON_3_14],
        compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
    )


@cache
def archive() -> bytes:
    """The layer's content as an archive with the folder `python`. A process makes it once.

    The archive is not compressed, since the output of compressors differs, and with it the asset's hash. Lambda unpacks
    it once, when the layer is published.
    """
    if BUILT.exists():
        return BUILT.read_bytes()
    content = BytesIO()
    with ZipFile(content, "w") as out:
        for name, source in sorted(_sources()):
            info = ZipInfo(f"python/{name}")
            # Otherwise Windows writes another number. Lambda's user must be able to read the files.
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            with open(source, "rb") as file:  # noqa: PTH123 - see _sources
                out.writestr(info, file.read())
    return content.getvalue()


def _staged(stack: Stack, content: bytes, digest: str) -> str:
    """Write the archive into the cloud assembly, under CDK's name for an asset of this hash. If a CDK version uses
    another name, it copies the file.
    """
    stage = Stage.of(stack)
    assert stage is not None, f"{stack.node.path} is in no app"
    path = Path(stage.asset_outdir, f"asset.{sha256(digest.encode()).hexdigest()}.zip")
    if not path.exists():
        # Another synthesis may write into the same folder, so the file appears by a rename.
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)
    return str(path)


def _sources() -> Iterator[tuple[str, str]]:
    """Name in the layer's `python` folder and path of each file, as text. `Path` objects take five times as long."""
    for module in MODULES:
        origin = _origin(module)
        if origin.endswith(".py"):
            yield f"{module}.py", origin
        for folder, _, files in os.walk(origin):
            inside = folder.removeprefix(origin).replace(os.sep, "/")
            for name in files:
                if name.endswith(_KINDS):
                    yield f"{module}{inside}/{name}", os.path.join(folder, name)  # noqa: PTH118


def _origin(module: str) -> str:
    """The folder of a package, or the file of a module, that Python would import."""
    spec = find_spec(module)
    origin = next(iter(spec.submodule_search_locations or ()), spec.origin) if spec else None
    if origin is None:
        raise ModuleNotFoundError(
            f"{module} is not installed beside cdk_intake_ledger: reinstall cdk-intake-ledger with its dependencies"
        )
    return origin
