"""`intake-ledger template`, where it cannot start the CDK, and its wrong usage. The deployed test is in tests/local."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App

from cdk_intake_ledger.template.options import TAKEN_NAMES, TemplateOptions
from cdk_intake_ledger.template.stack import TemplateStack
from intake_ledger_cli import commands

KEY = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


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
        (("--processor-arn", "book"), "--processor-arn is 'book', which is not the ARN of a Lambda function"),
        (("--processor-arn", "arn:aws:sqs:eu-central-1:111122223333:book"), "is not the ARN of a Lambda function"),
        (("--bucket-name", "mine", "--existing-bucket", "theirs"), "use one of them"),
        (("--name", ""), "name is '': use 1 to 64 letters"),
        (("--name", "a/b"), "name is 'a/b': use 1 to 64 letters"),
        (("--name", "Ledger"), "name is 'Ledger', which the template has for another element"),
        (("--bucket-name", "Inbox"), "--bucket-name is 'Inbox', which is not the name of a bucket: use 3 to 63"),
        (("--bucket-name", ""), "--bucket-name is ''"),
        (("--bucket-name", "s3://inbox/in"), "write 'inbox'"),
        (("--existing-bucket", "arn:aws:s3:::inbox"), "--existing-bucket is 'arn:aws:s3:::inbox'"),
        (("--existing-bucket", "inbox/in"), "is not the name of a bucket"),
        (("--key-arn", "alias/mine"), "--key-arn is 'alias/mine', which is not the ARN of a KMS key"),
        (("--key-arn", "1234abcd-12ab-34cd-56ef-1234567890ab"), "arn:aws:kms:REGION:ACCOUNT:key/ID"),
        (("--processing-timeout", "-5"), "--processing-timeout is -5: use a positive number"),
        (("--retention-days", "-1"), "--retention-days is -1"),
    ],
)
def test_wrong_names_and_arns_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    """Exit code 2, with the value and the fix, and without a file."""
    assert commands.run(["template", *arguments, "--to", str(tmp_path / "intake")]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert list(tmp_path.iterdir()) == []


def test_no_other_element_has_the_name_of_the_pipeline() -> None:
    """The CDK would end with an error that names no option."""
    options = TemplateOptions(name="Mine", existing_bucket="inbox", key_arn=KEY)
    stack = TemplateStack(App(), "Stack", options=options)
    names = {
        child.node.id for child in stack.node.children if not child.node.id.startswith("BucketNotificationsHandler")
    }
    assert names - TAKEN_NAMES == {"Mine"}


def test_the_command_prints_nothing_about_releases_of_nodejs(tmp_path: Path) -> None:
    """jsii has a page on them. And a stack's name has no underscore."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JSII_SILENCE")}
    arguments = [sys.executable, "-c", "from intake_ledger_cli import main; main()", "template", "--name", "my_files"]
    done = subprocess.run(
        [*arguments, "--to", str(tmp_path)], check=True, capture_output=True, text=True, env=environment
    )
    assert done.stderr == ""
    assert "--stack-name my-files --" in done.stdout


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
