"""The Lambda function that joins the parts of a run: it reads and writes the run's own files, and nothing else."""

import os
from collections.abc import Mapping
from typing import Any

import boto3

from intake_ledger.audit.in_parts import join_parts
from intake_ledger.audit.scratch import Scratch


def handler(event: Mapping[str, Any], _context: object) -> dict[str, Any]:
    """Lambda's entry point: `{"run": name}`. The parts to look at come back."""
    return join_parts(Scratch(boto3.client("s3"), os.environ["INTAKE_AUDIT_FILES"], event["run"]))
