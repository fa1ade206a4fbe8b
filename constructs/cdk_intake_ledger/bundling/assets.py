"""Wheels as CDK assets. The hash is known before anything is installed, and an asset that exists is not made again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling.requirements import Requirements
from cdk_intake_ledger.bundling.wheels import install

LAYER_FOLDER = "python"
"""Where Lambda looks for modules in a layer: https://docs.aws.amazon.com/lambda/latest/dg/python-layers.html."""


def wheel_code(requirements: Requirements, *, python: str, architecture: str, folder: str = "") -> lambda_.Code:
    """Pinned wheels as code of a function or layer, without Docker.

    The asset's hash is that of the pins. The wheels are installed when the CDK stages an asset that it does not have
    yet; `WheelError` is raised then. To report problems earlier and with others, call `wheels.install` first: it keeps
    its result.

    Args:
        requirements: of `parse_requirements(["duckdb==1.4.2"])` or `read_requirements(path)`.
        python: Lambda's Python, such as `3.13`.
        architecture: `arm64` or `x86_64`: the `name` of a `lambda_.Architecture`.
        folder: where in the asset; `LAYER_FOLDER` for a layer. At its top when omitted.

    """

    def fill(target: Path) -> None:
        copy_tree(install(requirements, python=python, architecture=architecture), target / folder)

    digest = requirements.digest(python, architecture)
    return made_code(f"wheels {folder} {digest}", fill)


def made_code(content: str, fill: Callable[[Path], None]) -> lambda_.Code:
    """Code that a function puts into a folder.

    Args:
        content: identifies the content; the asset's hash follows from it.
        fill: is called with an empty folder, if the CDK has no such asset in its output folder yet.

    """
    return lambda_.Code.from_asset(
        # The CDK also wants a source, from which it takes nothing.
        str(Path(__file__).parent),
        asset_hash_type=AssetHashType.CUSTOM,
        asset_hash=content,
        bundling=BundlingOptions(image=DockerImage.from_registry("docker-is-not-used"), local=_Local(fill)),
    )


def copy_tree(source: Path, target: Path) -> None:
    """Copy files into a folder that may have others.

    Args:
        source: a folder.
        target: another one, which is made if it does not exist.

    """
    for folder, _, files in os.walk(source):
        place = target / Path(folder).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            copy_file(Path(folder, name), place / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content, under a mode that does not depend on this machine's umask: Lambda's user has to read it.

    A hard link would be faster, but an edit of the copy would change the cache.

    Args:
        source: a file.
        target: its new path. Folders above it are made.

    """
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


@jsii.implements(ILocalBundling)
class _Local:
    def __init__(self, fill: Callable[[Path], None]) -> None:
        self._fill = fill

    def try_bundle(self, output_dir: str, options: Any = None, **_: Any) -> bool:  # noqa: ARG002 - the CDK passes them
        self._fill(Path(output_dir))
        return True
