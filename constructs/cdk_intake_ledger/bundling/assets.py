"""CDK assets of wheels. Their hash follows from the pins, so an existing asset is not made again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling.wheels import Requirements, install

LAYER_FOLDER = "python"
"""The folder of a layer where Lambda looks for modules: https://docs.aws.amazon.com/lambda/latest/dg/python-layers.html."""


def wheel_code(requirements: Requirements, *, python: str, architecture: str, folder: str = "") -> lambda_.Code:
    """Pinned wheels as code of a function or layer, without Docker.

    The asset's hash follows from the pins. The wheels are installed when the CDK stages an asset that it does not have
    yet. To report problems earlier, call `install` first: it caches its result.

    Args:
        requirements: such as `parse_requirements(["duckdb==1.4.2"])` or `read_requirements(path)`.
        python: Lambda's Python version, such as `3.13`.
        architecture: `arm64` or `x86_64`: the `name` of a `lambda_.Architecture`.
        folder: the wheels' folder in the asset, `LAYER_FOLDER` for a layer; the asset's top folder when omitted.

    Returns:
        the code.

    Raises:
        WheelError: at staging: the wheels cannot be installed.

    """

    def fill(target: Path) -> None:
        copy_tree(install(requirements, python=python, architecture=architecture), target / folder)

    digest = requirements.digest(python, architecture)
    return made_code(f"wheels {folder} {digest}", fill)


def made_code(content: str, fill: Callable[[Path], None]) -> lambda_.Code:
    """Code that a Python function writes into a folder.

    Args:
        content: an identity of the content, from which the asset's hash follows.
        fill: writes the content into an empty folder. The CDK calls it if its output folder has no such asset.

    Returns:
        the code.

    """
    return lambda_.Code.from_asset(
        # The CDK requires a source, but does not read it.
        str(Path(__file__).parent),
        asset_hash_type=AssetHashType.CUSTOM,
        asset_hash=content,
        bundling=BundlingOptions(image=DockerImage.from_registry("docker-is-not-used"), local=_Local(fill)),
    )


def copy_tree(source: Path, target: Path) -> None:
    """Copy all files of a folder into another folder, which may have other files.

    Args:
        source: a folder.
        target: another folder. It is made if it does not exist.

    """
    for folder, _, files in os.walk(source):
        place = target / Path(folder).relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            copy_file(Path(folder, name), place / name)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content, with a mode that does not depend on this machine's umask. Lambda's user must read it.

    A hard link would be faster, but an edit of the copy would change the cache.

    Args:
        source: a file.
        target: the path of the copy. Missing folders are made.

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
