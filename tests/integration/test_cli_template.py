"""`intake-ledger template`, where it cannot start the CDK, and its wrong usage. The deployed test is in tests/local."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inside.command import commands


def run_without(missing: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom intake_ledger_cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "template"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def test_without_the_cdk_it_says_what_to_install() -> None:
    """An image may have the wheel without its dependencies."""
    done = run_without("aws_cdk")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "needs aws_cdk, which is not installed: pip install 'cdk-intake-ledger[cli]'" in line


def test_without_nodejs_it_says_so() -> None:
    """The CDK would end with a traceback."""
    done = run_without("nothing", JSII_NODE="node-99")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith("needs Node.js 20 or later, and there is no node-99 on the PATH")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--processor-arn", "book"), "--processor-arn book is not the ARN of a Lambda function"),
        (("--processor-arn", "arn:aws:sqs:eu-central-1:111122223333:book"), "is not the ARN of a Lambda function"),
        (("--bucket-name", "mine", "--existing-bucket", "theirs"), "use one of them"),
    ],
)
def test_wrong_options_are_refused_before_the_cdk_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    """One line, and exit code 2."""
    assert commands.run(["template", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_what_synthesis_refuses_is_one_line_with_each_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The messages are those of `cdk synth`. Nothing is written. Node.js may have warned before."""
    wrong = ("--prefix", "s3://b/in/", "--processing-timeout", "5000", "--to", str(tmp_path / "intake"))
    assert commands.run(["template", *wrong]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    for rule in ("processing-timeout-range", "key-is-uri"):
        assert f"[intake-ledger:{rule}]" in line
    assert list(tmp_path.iterdir()) == []
