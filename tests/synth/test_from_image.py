"""A container image as the processor. Synthesis needs no Docker engine: the CDK's CLI builds images at deployment."""

import json
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger import IntakeConfigurationError, IntakePipeline, Processor
from tests.synth.build import Json, new_app, new_stack, only, resources, rules_in, statements, template_of, variables

ARM, X86 = lambda_.Architecture.ARM_64, lambda_.Architecture.X86_64
HANDLER = "intake_ledger.consumer.handler"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    image = tmp_path / "pictures"
    image.mkdir()
    (image / "Dockerfile").write_text("FROM public.ecr.aws/lambda/python:3.13\n")
    return image


def from_image(
    image: Any, entrypoint: str = "pictures:process", architecture: lambda_.Architecture = ARM, **options: Any
) -> Processor:
    return Processor.from_image(image, entrypoint=entrypoint, architecture=architecture, **options)


def test_a_folder_is_an_image_without_a_docker_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image has the function's platform and our handler as its command. The Dockerfile gets the release."""
    monkeypatch.setattr(subprocess, "run", None)
    out = folder.parent / "cdk.out"
    app = new_app(outdir=str(out))
    for name, architecture in (("Arm", ARM), ("X86", X86)):
        IntakePipeline(
            new_stack(name, app),
            "Pictures",
            processor=from_image(folder, architecture=architecture, memory_size=2048, environment={"MODE": "b"}),
        )
    app.synth()
    for name, machine, platform in (("Arm", "arm64", "linux/arm64"), ("X86", "x86_64", "linux/amd64")):
        template = json.loads((out / f"{name}.template.json").read_text())
        consumer = only(template, "AWS::Lambda::Function", "PicturesConsumer")
        assert consumer["PackageType"] == "Image"
        assert consumer["ImageConfig"] == {"Command": [HANDLER]}
        assert consumer["Architectures"] == [machine]
        assert consumer["MemorySize"] == 2048
        assert not {"Layers", "Runtime", "Handler"} & consumer.keys()
        environment = variables(template, "PicturesConsumer")
        assert (environment["INTAKE_PROCESSOR"], environment["MODE"]) == ("pictures:process", "b")
        (image,) = json.loads((out / f"{name}.assets.json").read_text())["dockerImages"].values()
        assert image["source"]["platform"] == platform
        assert image["source"]["dockerBuildArgs"] == {"INTAKE_LEDGER_VERSION": version("cdk-intake-ledger")}
        assert consumer["Code"]["ImageUri"]["Fn::Sub"].endswith(next(iter(image["destinations"].values()))["imageTag"])


def test_the_audit_has_the_layer_all_the_same(folder: Path) -> None:
    """The audit runs our code only."""
    stack = new_stack()
    IntakePipeline(stack, "Pictures", processor=from_image(folder))
    audit = only(template_of(stack), "AWS::Lambda::Function", "PicturesAudit")
    assert audit["Runtime"] == "python3.13"
    assert len(audit["Layers"]) == 1


def test_an_image_of_the_teams_is_run_with_our_command() -> None:
    """The image comes from a repository, with its own settings. Only the command is replaced."""
    stack = new_stack()
    repository = ecr.Repository.from_repository_name(stack, "Images", "pictures")
    code = lambda_.DockerImageCode.from_ecr(
        repository, tag_or_digest="1", cmd=["other.handler"], working_directory="/x"
    )
    IntakePipeline(stack, "Pictures", processor=from_image(code, architecture=X86))
    consumer = only(template_of(stack), "AWS::Lambda::Function", "PicturesConsumer")
    assert consumer["ImageConfig"] == {"Command": [HANDLER], "WorkingDirectory": "/x"}
    assert consumer["Architectures"] == ["x86_64"]


def test_everything_else_is_as_with_any_processor(folder: Path) -> None:
    """Role, event source and alarms do not depend on how the code comes."""

    def of(processor: Processor) -> Json:
        stack: Stack = new_stack()
        IntakePipeline(stack, "Pictures", processor=processor)
        return template_of(stack)

    (folder / "pictures.py").write_text("def process(change): ...\n")
    image, code = of(from_image(folder)), of(Processor.from_asset(folder, entrypoint="pictures:process"))
    assert list(statements(image)) == list(statements(code))
    assert image["Resources"].keys() == code["Resources"].keys()
    for kind in ("AWS::Lambda::EventSourceMapping", "AWS::CloudWatch::Alarm"):
        assert resources(image, kind) == resources(code, kind)


@pytest.mark.parametrize(
    ("image", "rule", "text"),
    [
        ("nowhere", "image-folder", "processor image 'nowhere' does not exist (looked from '"),
        ("", "image-dockerfile", "has no Dockerfile"),
    ],
)
def test_a_folder_without_a_dockerfile_is_refused(tmp_path: Path, image: str, rule: str, text: str) -> None:
    """Otherwise the CLI would fail at deployment."""
    (problem,) = from_image(image or tmp_path).problems
    assert text in problem
    assert rules_in(problem) == [rule]


def test_the_entry_point_has_the_right_form(folder: Path) -> None:
    """Synthesis does not know the place of the module in the image."""
    (problem,) = from_image(folder, entrypoint="pictures").problems
    assert "is not of the form 'module:function'" in problem


def test_code_and_image_are_not_mixed_up(folder: Path) -> None:
    """`from_code` takes a `lambda_.Code`; an image's layers could not be attached."""
    image = lambda_.DockerImageCode.from_image_asset(str(folder))
    with pytest.raises(IntakeConfigurationError, match=r"Pass it to Processor\.from_image"):
        Processor.from_code(image, entrypoint="a:b")  # type: ignore[arg-type] # the test passes a wrong type
    with pytest.raises(TypeError, match="layers"):
        from_image(folder, layers=[])
