"""The constructs import no code that sends requests."""

import subprocess
import sys
from textwrap import dedent

import pytest


@pytest.mark.failure_mode("F746")
def test_an_app_needs_no_boto3() -> None:
    """A machine that synthesizes may have none. The runtime's modules that the constructs import send no request."""
    program = """
        import importlib, pkgutil, sys
        sys.modules.update(boto3=None, botocore=None)
        import cdk_intake_ledger as door
        for one in pkgutil.walk_packages(door.__path__, door.__name__ + "."):
            importlib.import_module(one.name)
    """
    ended = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
