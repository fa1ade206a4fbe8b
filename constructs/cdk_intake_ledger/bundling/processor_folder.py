"""The folder of a processor: its files, the wheels of its `requirements.txt`, and the asset with both."""

import os
import re
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import IgnoreMode
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling.entrypoint import argument_type, entrypoint_problems
from cdk_intake_ledger.bundling.imports import missing_imports, modules_in
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.processor_rules import (
    CODE_SIZE,
    FILE_IN_FOLDER_AND_WHEEL,
    IMPORT_NOT_INSTALLED,
    IMPORT_WITHOUT_REQUIREMENTS,
    POWERTOOLS_VERSION,
    RUNTIME_HIDDEN,
    WHEELS_PLATFORM,
)

if TYPE_CHECKING:
    from cdk_intake_ledger.bundling.wheels import Requirements

REQUIREMENTS = "requirements.txt"

# Lambda needs none of these files, and they differ between machines, as the asset's hash then would.
NOT_CODE = ("__pycache__/", "*.pyc", ".*", "*.egg-info/")

POWERTOOLS = "3"
"""The major version of Powertools that the consumer needs."""

MOST_BYTES = 262_144_000
"""Unpacked size of a function's code with its layers: 250 MB at
https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html."""


class ProcessorFolder:
    """The folder of one processor, for the Python version and architecture of its function."""

    def __init__(
        self,
        directory: Path,
        entrypoint: str,
        *,
        python: str,
        architecture: str,
        any_module: bool,
        returns_commit: bool = True,
    ) -> None:
        """Describe the folder. This reads nothing yet.

        Args:
            directory: the folder with your modules.
            entrypoint: `module:function`.
            python: Lambda's Python version, such as `3.13`; empty if the runtime is refused.
            architecture: `arm64` or `x86_64`.
            any_module: whether the function may import modules from other places, such as layers or `PYTHONPATH`.
            returns_commit: whether the function returns a commit, and not the results of several changes; true when
                omitted.

        """
        self._returns_commit = returns_commit
        self._directory = directory
        self._entrypoint = entrypoint
        self._python = python
        self._architecture = architecture
        self._any_module = any_module

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Reasons why the folder would not run on Lambda. The first call installs the wheels."""
        found = entrypoint_problems(self._directory, self._entrypoint, returns_commit=self._returns_commit)
        problems = list(found)
        if not self._directory.is_dir():
            return tuple(problems)
        wheels = self._directory
        if self._has_requirements and not self._is_known_platform:
            return tuple(problems) if not self._python else (*problems, self._platform_problem())
        if self._has_requirements:
            from cdk_intake_ledger.bundling.wheels import WheelError  # noqa: PLC0415 - see _wheels

            if ours := self._requirements.names.get("cdk-intake-ledger"):
                return (*problems, self._hiding(ours))  # with the CDK, it would be a large installation
            try:
                wheels = self._wheels
            except WheelError as error:
                # Without the wheels the imports cannot be judged.
                return (
                    *problems,
                    *(problem.within(f"processor path '{self._directory}'") for problem in error.problems),
                )
            problems += self._wheel_problems(wheels)
        if not problems:
            problems += self._import_problems(wheels)
        return tuple(problems)

    @property
    def argument_type(self) -> str | None:
        """The type in the annotation of the processor's argument; None if synthesis does not know it."""
        return argument_type(self._directory, self._entrypoint)

    @property
    def code(self) -> lambda_.Code:
        """The asset. CDK binds an asset to the first stack that uses it, so each pipeline needs a new one."""
        if not self._has_requirements:
            return lambda_.Code.from_asset(str(self._directory), exclude=list(NOT_CODE), ignore_mode=IgnoreMode.GIT)
        from cdk_intake_ledger.bundling.assets import copy_file, copy_tree, made_code  # noqa: PLC0415 - see _wheels

        def fill(target: Path) -> None:
            copy_tree(self._wheels, target)
            for name, path in self._files:
                copy_file(path, target / name)

        return made_code(f"processor {self._digest}", fill)

    @cached_property
    def _has_requirements(self) -> bool:
        return (self._directory / REQUIREMENTS).is_file()

    @property
    def _is_known_platform(self) -> bool:
        return re.fullmatch(r"3\.\d+", self._python) is not None and self._architecture in ("arm64", "x86_64")

    def _platform_problem(self) -> Problem:
        return WHEELS_PLATFORM.problem(
            path=self._directory, requirements=REQUIREMENTS, python=self._python, architecture=self._architecture
        )

    @cached_property
    def _wheels(self) -> Path:
        # A folder without requirements needs none of these modules, and not `packaging`, at synthesis.
        from cdk_intake_ledger.bundling.wheels import install  # noqa: PLC0415

        return install(self._requirements, python=self._python, architecture=self._architecture)

    @cached_property
    def _requirements(self) -> "Requirements":
        from cdk_intake_ledger.bundling.wheels import read_requirements  # noqa: PLC0415 - as above

        return read_requirements(self._directory / REQUIREMENTS)

    @cached_property
    def _digest(self) -> str:
        """Hash of the folder's files, the pins, the Python version and the architecture."""
        digest = sha256(self._requirements.digest(self._python, self._architecture).encode())
        for name, path in self._files:
            digest.update(f"{name}\0".encode() + sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    @cached_property
    def _files(self) -> list[tuple[str, Path]]:
        """Names and paths of the folder's files in the asset."""
        return sorted(_code_files(self._directory))

    def _wheel_problems(self, wheels: Path) -> Iterator[Problem]:
        if "intake_ledger" in modules_in(wheels):
            yield self._hiding(REQUIREMENTS)
        for about in wheels.glob("aws_lambda_powertools-*.dist-info"):
            version = about.name.removesuffix(".dist-info").partition("-")[2]
            if version.partition(".")[0] != POWERTOOLS:
                yield POWERTOOLS_VERSION.problem(
                    path=self._directory, requirements=REQUIREMENTS, version=version, major=POWERTOOLS
                )
        for name in sorted(self._collisions(wheels))[:8]:
            yield FILE_IN_FOLDER_AND_WHEEL.problem(path=self._directory, name=name, requirements=REQUIREMENTS)
        size = sum(path.stat().st_size for _, path in self._files) + sum(
            path.stat().st_size for path in wheels.rglob("*") if path.is_file()
        )
        if size > MOST_BYTES:
            yield CODE_SIZE.problem(path=self._directory, size=size / 2**20)

    def _hiding(self, source: str) -> Problem:
        return RUNTIME_HIDDEN.problem(path=self._directory, source=source)

    def _collisions(self, wheels: Path) -> Iterator[str]:
        """Files that both have, and modules that hide another one. Parts of a namespace package do not collide."""
        for name, _ in self._files:
            if (wheels / name).exists():
                yield name
            elif "/" not in name and name.endswith(".py") and (wheels / name.removesuffix(".py")).is_dir():
                yield name.removesuffix(".py")
            elif name.count("/") == 1 and (wheels / f"{name.partition('/')[0]}.py").exists():
                yield name.partition("/")[0]

    def _import_problems(self, wheels: Path) -> Iterator[Problem]:
        """Imports that would fail on Lambda."""
        if self._any_module:
            return
        module, function = self._entrypoint.split(":")
        for missing in missing_imports(self._directory, module, function, modules_in(wheels)):
            rule, requirements = (
                (IMPORT_NOT_INSTALLED, REQUIREMENTS)
                if self._has_requirements
                else (IMPORT_WITHOUT_REQUIREMENTS, self._directory / REQUIREMENTS)
            )
            yield rule.problem(
                source=missing.source,
                line=missing.line,
                name=missing.name,
                distribution=missing.distribution,
                requirements=requirements,
            )


def _code_files(directory: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(directory, followlinks=True):
        folders[:] = [
            name for name in folders if name != "__pycache__" and name[0] != "." and not name.endswith(".egg-info")
        ]
        for name in files:
            if name[0] != "." and not name.endswith(".pyc"):
                path = Path(folder, name)
                yield path.relative_to(directory).as_posix(), path
