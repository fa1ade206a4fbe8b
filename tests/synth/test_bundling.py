"""Wheels in assets: known before they are installed, and installed once."""

import json
import subprocess
from pathlib import Path

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.bundling.assets import LAYER_FOLDER, made_code, wheel_code
from cdk_intake_ledger.bundling.wheels import parse_requirements
from tests.synth.build import new_app
from tests.wheel_maker import only_index


def layer_in(app: App, name: str = "Stack", *lines: str) -> None:
    code = wheel_code(parse_requirements(lines), python="3.13", architecture="arm64", folder=LAYER_FOLDER)
    lambda_.LayerVersion(Stack(app, name), "Layer", code=code)


def test_a_layer_of_wheels_is_installed_once_and_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stacks have one asset, under `python/`. A second synthesis in the same folder runs neither uv nor Docker,
    and needs no cache.
    """
    only_index(tmp_path, monkeypatch).add("one", "1.0")
    out = tmp_path / "cdk.out"
    for round_ in range(2):
        app = new_app(outdir=str(out))
        layer_in(app, "First", "one==1.0")
        layer_in(app, "Second", "# the same", "one==1.0")
        app.synth()
        if not round_:
            # From now on, each attempt to run a command fails.
            monkeypatch.setattr(subprocess, "run", None)
            monkeypatch.setenv("CDK_INTAKE_LEDGER_CACHE", str(tmp_path / "another"))
    (asset,) = out.glob("asset.*")
    assert sorted(file.relative_to(asset).as_posix() for file in asset.rglob("*.py")) == ["python/one.py"]
    for stack in ("First", "Second"):
        files = json.loads((out / f"{stack}.assets.json").read_text())["files"].values()
        assert [asset_file["source"]["path"] for asset_file in files if asset_file["source"]["packaging"] == "zip"] == [
            asset.name
        ]


def test_a_problem_stops_the_synthesis_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer without its wheels would fail at the first import."""
    only_index(tmp_path, monkeypatch)
    with pytest.raises(Exception, match="nowhere was not found"):
        layer_in(new_app(outdir=str(tmp_path / "cdk.out")), "Stack", "nowhere==1.0")


def test_the_hash_is_known_before_the_content(tmp_path: Path) -> None:
    """It follows from the text that stands for the content: not from files, nor from what else is in the app."""

    def name_of(out: Path, content: str) -> str:
        app = new_app(outdir=str(out))

        def fill(target: Path) -> None:
            (target / "file").write_text(content)

        code = made_code("pins", fill)
        lambda_.LayerVersion(Stack(app, "Stack"), "Layer", code=code)
        app.synth()
        (asset,) = out.glob("asset.*")
        assert (asset / "file").read_text() == content
        return asset.name

    assert name_of(tmp_path / "one", "one") == name_of(tmp_path / "two", "two")
