"""Parts of the stacks: the queue that receives S3's messages, and a consumer's queue made by hand."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from examples.harness.world import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from constructs import Construct

    from cdk_intake_ledger import Processor


def new_app() -> cdk.App:
    """Return an app without CDK's validation of the template, which takes seven seconds. Tests do it."""
    return cdk.App(builtin_cloud_formation_validation=False)


def add_tap(stack: cdk.Stack) -> None:
    """Add the queue that receives S3's messages. The comparison forwards them with faults."""
    tap = sqs.Queue(stack, "Tap")
    tap.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            resources=[tap.queue_arn],
            conditions={"StringEquals": {"aws:SourceAccount": stack.account}},
        )
    )
    cdk.CfnOutput(stack, "TapQueueUrl", value=tap.queue_url)


def queue_by_hand(scope: Construct, name: str, timeout: int, *, receives: int) -> sqs.Queue:
    """Make the usual resources: a queue with six times the function's timeout and a dead-letter queue."""
    dead_letters = sqs.Queue(scope, f"{name}DeadLetters")
    queue = sqs.Queue(
        scope,
        f"{name}Queue",
        visibility_timeout=cdk.Duration.seconds(6 * timeout),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=receives),
    )
    cdk.CfnOutput(scope, f"{name}QueueUrl", value=queue.queue_url)
    cdk.CfnOutput(scope, f"{name}DeadLetterQueueUrl", value=dead_letters.queue_url)
    return queue


def function_by_hand(
    scope: Construct, id: str, handler: str, timeout: int, *, like: Processor, environment: Mapping[str, str]
) -> lambda_.Function:
    """Make the function of a consumer without a ledger, from a processor's code, on its runtime."""
    assert isinstance(like.code, lambda_.Code)
    return lambda_.Function(
        scope,
        id,
        runtime=like.runtime,
        architecture=like.architecture,
        memory_size=512,
        timeout=cdk.Duration.seconds(timeout),
        handler=handler,
        code=like.code,
        environment=environment,
    )


def this_machine() -> dict[str, Any]:
    """Return the runtime and the architecture of this machine, since functions of the local AWS run on it."""
    is_arm = platform.machine().lower() in ("arm64", "aarch64")
    return {
        "runtime": getattr(lambda_.Runtime, f"PYTHON_3_{sys.version_info.minor}"),
        "architecture": lambda_.Architecture.ARM_64 if is_arm else lambda_.Architecture.X86_64,
    }


def stage_code(directory: Path, *names: str, requirements: str = "") -> Path:
    """Copy files and folders of the repository, with their package names. One of the files goes to the top."""
    for name in names:
        source, target = ROOT / name, directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    if requirements:
        (directory / requirements).replace(directory / Path(requirements).name)
    return directory
