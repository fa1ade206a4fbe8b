"""A container image needs no more than the Dockerfile in docs/processor.md installs."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger import IntakePipeline, Processor
from cdk_intake_ledger.bundling.imports import LAMBDA_MODULES
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME
from tests.synth.build import PROCESSORS, new_stack, only, template_of

PAGE = (Path(__file__).parents[2] / "docs" / "processor.md").read_text()
[DOCKERFILE] = re.findall(r"^```dockerfile\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[RUNTIME, POWERTOOLS, _] = re.findall(r"^RUN pip (install .*)$", DOCKERFILE, re.MULTILINE)
BASE = (*sorted(LAMBDA_MODULES - {"awslambdaric", "pip", "runtime_client", "simplejson", "snapshot_restore_py"}),)

# Lambda's own client: it imports the module of the command and calls the function for each event.
CLIENT = """
import importlib, json, sys
sys.path[:0] = json.loads(sys.argv[1])
module, _, function = sys.argv[2].rpartition(".")
class Context:
    aws_request_id = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    def get_remaining_time_in_millis(self): return 60_000
answer = getattr(importlib.import_module(module), function)(json.loads(sys.argv[3]), Context())
names = [name for name in ("pictures", "aws_cdk", "jsii", "cdk_intake_ledger") if name in sys.modules]
sys.stderr.write(json.dumps({"answer": answer, "imported": names, "from": sys.modules["intake_ledger"].__file__}))
"""


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The folders on the image's path: the function's, the installed ones, and the modules that Lambda's image has."""
    home = tmp_path_factory.mktemp("image")
    task, site, base = home / "task", home / "site", home / "base"
    for folder in (task, base):
        folder.mkdir()
    (task / "pictures.py").write_text("def process(change): ...\n")
    version = wheel.name.split("-")[1]
    for command in (RUNTIME, POWERTOOLS):
        words = shlex.split(command.replace("${INTAKE_LEDGER_VERSION}", version))
        subprocess.run(
            [sys.executable, "-m", "pip", *words, "--quiet", "--target", str(site)],
            env=os.environ | {"PIP_FIND_LINKS": str(wheel.parent)},
            check=True,
        )
    for name in BASE:
        spec = find_spec(name)
        assert spec is not None, name
        assert spec.origin is not None, name
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (base / source.name).symlink_to(source)
    return [str(task), str(site), str(base)]


def test_the_handler_starts_with_what_the_dockerfile_installs(image: list[str]) -> None:
    """The command and the variables are those of the template. The processor is loaded, and the CDK is not there."""
    stack = new_stack()
    processor = Processor.from_image(
        PROCESSORS / "pictures", entrypoint="pictures:process", architecture=lambda_.Architecture.ARM_64
    )
    IntakePipeline(stack, "Pictures", processor=processor)
    consumer = only(template_of(stack), "AWS::Lambda::Function", "PicturesConsumer")
    environment = consumer["Environment"]["Variables"]
    url = "https://sqs.eu-central-1.amazonaws.com/111122223333/queue"
    variables = {name: value if isinstance(value, str) else url for name, value in environment.items()}
    [command] = consumer["ImageConfig"]["Command"]
    body = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b", "Time": "2026-01-01T00:00:00Z"})
    record = {"messageId": "1", "body": body, "attributes": {"ApproximateReceiveCount": "1"}, "receiptHandle": "r"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", CLIENT, json.dumps(image), command, json.dumps({"Records": [record]})],
        env={
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
        | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = json.loads(done.stderr)
    assert output["answer"] == {"batchItemFailures": []}
    assert output["imported"] == ["pictures"]
    assert Path(output["from"]).is_relative_to(image[1])


def test_nothing_of_the_cdk_is_installed(image: list[str]) -> None:
    """It would be more than all the rest."""
    installed = {path.name for path in Path(image[1]).iterdir()}
    assert {"intake_ledger", "aws_lambda_powertools"} <= installed
    assert not {"aws_cdk", "jsii", "constructs"} & installed


def test_the_base_image_is_that_of_the_tested_runtime() -> None:
    """The page follows the default."""
    assert f"FROM public.ecr.aws/lambda/python:{TESTED_RUNTIME.name.removeprefix('python')}\n" in DOCKERFILE
