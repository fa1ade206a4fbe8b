"""Pinned wheels for Lambda, installed at synthesis: with uv, without Docker, once for each set of pins.

The cache is `$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

import os
import shutil
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from cdk_intake_ledger.bundling.requirements import Requirements, WheelError
from cdk_intake_ledger.bundling.wheel_installation import WheelInstallation

UNUSED_DAYS = 30
"""Days after which unused wheels leave the cache."""


def install(requirements: Requirements, *, python: str, architecture: str) -> Path:
    """Install the wheels of these requirements once, and keep the folder in the cache. Do not change the folder.

    The folder has no console scripts and no byte code. It has no unpinned distribution that Lambda's own version
    satisfies.

    Args:
        requirements: pinned requirements, from `read_requirements` or `parse_requirements`.
        python: Lambda's Python version, such as `3.13`.
        architecture: `arm64` or `x86_64`, Lambda's names.

    Returns:
        the folder with the unpacked wheels.

    Raises:
        WheelError: a line is not pinned, a wheel or version does not exist, the index cannot be reached, or a shared
            object is for another machine.

    """
    if requirements.problems:
        raise WheelError(requirements.problems)
    installation = WheelInstallation(requirements, python, architecture)
    # Another index may have another wheel under the same name and version.
    indexes = sha256("\n".join(map(" ".join, requirements.options)).encode()).hexdigest()
    cached = cache_folder() / f"{requirements.digest(python, architecture)}-{indexes[:8]}"
    if cached.is_dir():
        os.utime(cached)
        return cached
    _tidy(cached.parent)
    # In the same folder, so that a rename completes it.
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".new-") as temporary:
        content = Path(temporary, "content")
        installation.install(content)
        try:
            content.rename(cached)
        except OSError:
            if not cached.is_dir():  # another synthesis installed it first
                raise
    return cached


def cache_folder() -> Path:
    """The cache's folder for installed wheels. This function makes it if it does not exist."""
    chosen = os.environ.get("CDK_INTAKE_LEDGER_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(chosen).absolute() if chosen else Path(home, "cdk-intake-ledger")
    try:
        (folder / "wheels").mkdir(parents=True, exist_ok=True)
    except OSError:
        if chosen:
            raise
        # A build server's user may have no home that it can write to.
        return Path(tempfile.mkdtemp(prefix="cdk-intake-ledger-"))
    return folder / "wheels"


def _tidy(cache: Path) -> None:
    for entry in cache.iterdir():
        if entry.is_dir() and time.time() - entry.stat().st_mtime > UNUSED_DAYS * 86_400:
            shutil.rmtree(entry, ignore_errors=True)
