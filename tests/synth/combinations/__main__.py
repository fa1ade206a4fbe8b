"""`make combinations`: synthesise all combinations on the oldest and the newest CDK, and check the templates."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

from tests.synth.combinations.checks import problems
from tests.synth.combinations.rows import ALL

ROOT = Path(__file__).parents[3]
PYTHONS = {"oldest": ROOT / "build" / "lowest" / "bin" / "python", "newest": Path(sys.executable)}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in ("constructs", "lambda_src", "tools", "."))
}
NOT_OURS = ("matrix-stages-of-a-cdk-pipeline",)
"""Combinations in which cfn-lint finds errors in resources of the CDK."""


def synthesis(cdk: str, folder: Path) -> float:
    """Synthesise all combinations in a process with one CDK, and return the seconds."""
    began = time.monotonic()
    done = subprocess.run(
        [PYTHONS[cdk], "-m", "tests.synth.combinations.synthesis", folder],
        env=ENVIRONMENT,
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{cdk} CDK: the synthesis ended with {done.returncode}\n{done.stderr[-4_000:]}")
    return time.monotonic() - began


def lint_errors(folder: Path) -> list[str]:
    """Errors of cfn-lint in the templates of a combination."""
    return [] if folder.name in NOT_OURS else list(_findings(folder))


def _findings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.template.json")):
        config = ManualArgs(regions=["eu-central-1"], ignore_checks=["W", "I"])
        for finding in lint(path.read_text(), config=config):
            yield f"{path.name}: {finding.rule.id} {finding.message}"


def main() -> None:
    """Print each problem, and exit with 1 if there are any."""
    count, names = 0, [item.name for item in ALL]
    with TemporaryDirectory() as directory:
        folders = {cdk: Path(directory, cdk) for cdk in PYTHONS}
        with ThreadPoolExecutor() as threads:
            times = dict(zip(PYTHONS, threads.map(synthesis, folders, folders.values()), strict=True))
        with ProcessPoolExecutor() as processes:
            linted = dict(
                zip(
                    [item.name for item in ALL],
                    processes.map(lint_errors, [folders["newest"] / name for name in names]),
                    strict=True,
                )
            )
        for cdk, folder in folders.items():
            for item in ALL:
                found = [*problems(item, folder / item.name), *(linted[item.name] if cdk == "newest" else ())]
                count += len(found)
                for text in found:
                    print(f"{cdk} CDK: {item.name} {text}")
            print(f"{cdk} CDK: {len(ALL)} apps in {times[cdk]:.0f} seconds", flush=True)
    refused = sum(item.refused is not None for item in ALL)
    print(f"{len(ALL)} combinations, of which {refused} are refused. {count} problems.")
    raise SystemExit(1 if count else 0)


if __name__ == "__main__":
    main()
