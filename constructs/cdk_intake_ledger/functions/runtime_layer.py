"""The layer that holds what runs in Lambda: our own package and Powertools, taken from where they are installed.

Neither Docker nor a network is needed at synthesis. Only `*.py` and `*.sql` go in, under file modes, times and names
that do not depend on the machine, so that a checkout, an editable install and a wheel give the same asset. It is an
archive already, and where the CDK would put it: it need not copy and hash some 400 files.
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

from aws_cdk import Stage
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

PACKAGE = "intake_ledger"
# Powertools whole, although we use its logger and metrics alone: a pruned copy failed at import. Of what it imports,
# Lambda has jmespath beside boto3, which needs it too, and with byte code: a cold start need not compile it.
MODULES = (PACKAGE, "aws_lambda_powertools", "typing_extensions")
_KINDS = (".py", ".sql")
_UNIX = 3
"""Where an archive's entry was made, by the ZIP format's own numbers."""

TESTED_RUNTIME = lambda_.Runtime.PYTHON_3_13
"""What the functions run on unless the processor asks for another; the tests run on it."""


def runtime_layer(scope: Construct, id: str) -> lambda_.LayerVersion:
    """A layer version with the runtime, for every Python that the runtime knows and for both architectures."""
    content = archive()
    digest = sha256(content).hexdigest()
    return lambda_.LayerVersion(
        scope,
        id,
        description="Intake ledger: consumer and audit, with Powertools for AWS Lambda",
        code=lambda_.Code.from_asset(_staged(scope, content, digest), asset_hash=digest),
        compatible_runtimes=[lambda_.Runtime.PYTHON_3_12, TESTED_RUNTIME, lambda_.Runtime.PYTHON_3_14],
        compatible_architectures=[lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64],
    )


@cache
def archive() -> bytes:
    """The layer's content as an archive: `python/` with the packages in it. Made once in a process.

    Stored and not compressed: compressors differ, and with them the asset's hash would. Lambda unpacks it once, when
    the layer is published.
    """
    content = BytesIO()
    with ZipFile(content, "w") as out:
        for name, source in sorted(_sources()):
            info = ZipInfo(f"python/{name}")
            # Otherwise Windows leaves another mark; Lambda's own user has to read the files.
            info.create_system = _UNIX
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            with open(source, "rb") as file:  # noqa: PTH123 - see _sources
                out.writestr(info, file.read())
    return content.getvalue()


def _staged(scope: Construct, content: bytes, digest: str) -> str:
    """The archive in the cloud assembly, by the name that the CDK has for an asset of this hash. A CDK that has another
    name for it copies the file.
    """
    stage = Stage.of(scope)
    assert stage is not None, f"{scope.node.path} is in no app"
    path = Path(stage.asset_outdir, f"asset.{sha256(digest.encode()).hexdigest()}.zip")
    if not path.exists():
        # Whole or not at all, whoever else synthesises into the same folder.
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(content)
        written.replace(path)
    return str(path)


def _sources() -> Iterator[tuple[str, str]]:
    """The name of each file in the layer's `python` folder, and where it is. In plain texts: paths take five times as
    long, which is more than all the rest.
    """
    for module in MODULES:
        origin = _origin(module)
        if origin.endswith(".py"):
            yield f"{module}.py", origin
        for folder, _, files in os.walk(origin):
            inside = folder.removeprefix(origin).replace(os.sep, "/")
            yield from ((f"{module}{inside}/{one}", os.path.join(folder, one)) for one in files if one.endswith(_KINDS))  # noqa: PTH118


def _origin(module: str) -> str:
    """The folder of a package, or the file of a module, as Python itself would import it."""
    spec = find_spec(module)
    origin = next(iter(spec.submodule_search_locations or ()), spec.origin) if spec else None
    if origin is None:
        raise ModuleNotFoundError(
            f"{module} is not installed beside cdk_intake_ledger: reinstall cdk-intake-ledger with its dependencies"
        )
    return origin
