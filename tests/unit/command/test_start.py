"""F395: the help, `status` and `list` import what they use, because an import of everything takes a third of a second.

Modules are counted, and not milliseconds: the time depends on the machine.
"""

import json
import subprocess
import sys

import pytest

from intake_ledger_cli import commands

HEAVY = ("aws_cdk", "boto3", "botocore.client", "botocore.parsers", "botocore.session", "jinja2", "s3transfer")
_PROGRAM = """
import contextlib, io, json, sys
from intake_ledger_cli import commands
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    {call}
print(json.dumps(sorted(sys.modules)))
"""


def modules_after(call: str) -> list[str]:
    program = _PROGRAM.format(call=call)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.failure_mode("F395")
def test_the_help_imports_no_sdk() -> None:
    found = modules_after("commands.run(['--help'])")
    assert not set(found) & set(HEAVY)
    assert len(found) < 520  # 588 before


@pytest.mark.failure_mode("F395")
@pytest.mark.parametrize("command", ["status", "list"])
def test_a_command_imports_its_own_module(command: str) -> None:
    found = modules_after(f"commands.load({command!r})")
    assert not set(found) & set(HEAVY)
    own = {one.rpartition(".")[2] for one in found if one.startswith("intake_ledger_cli.")}
    assert "looking_commands" in own
    assert not own & {"report_page", "retrying", "again", "retry_command", "template_command"}
    assert len(found) < 370  # 588 before


@pytest.mark.failure_mode("F395")
def test_the_help_begins_with_what_people_need_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*commands.COMMANDS][:3] == ["status", "list", "inspect"]
    assert commands.run(["--help"]) == 0
    shown = capsys.readouterr().out
    lines = [line.removeprefix("│ ").partition(" ")[0] for line in shown.splitlines()]
    assert [one for one in lines if one in commands.COMMANDS] == [*commands.COMMANDS]


def test_each_command_is_in_the_table() -> None:
    names = [one.name or str(getattr(one.callback, "__name__", "")) for one in commands.app.registered_commands]
    assert names == [*commands.COMMANDS]
