"""The documentation site: it builds without warnings, has all public names, and loads nothing from elsewhere."""

import inspect
import json
import os
import re
import subprocess
import zlib
from importlib import import_module
from pathlib import Path

import pytest

import cdk_intake_ledger
from cdk_intake_ledger.checks.registry import all_rules
from intake_ledger.contract import ALARMS
from intake_ledger_cli import commands

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / "build" / "mkdocs" / "bin" / "mkdocs"
FIRST = 6
"""Results on the first screen of the search."""
QUIET = {"NO_MKDOCS_2_WARNING": "1"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a strict build: any warning fails it. With `--quiet` mkdocs would not count warnings."""
    if not MKDOCS.exists():
        pytest.fail("the documentation has an environment of its own: make docs")
    folder = tmp_path_factory.mktemp("site")
    command = [str(MKDOCS), "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_has_every_public_name(site: Path) -> None:
    """In the inventory that other projects' documentation links by."""
    inventory = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    documented = {line.split(" ")[0] for line in inventory.splitlines()}
    packages = ("cdk_intake_ledger", "intake_ledger", "cdk_intake_ledger.testing")
    public = {f"{package}.{name}" for package in packages for name in import_module(package).__all__}
    assert public - documented == set()


def test_a_reader_without_a_network_sees_all_of_it(site: Path) -> None:
    """No script, style, font or picture comes from another server."""
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*src=["']?https?:[^>]*>|<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*https?:[^>]*>"""
    )
    assert [address for page in site.rglob("*.html") for address in loads.findall(page.read_text())] == []
    diagrams = site / "protocol" / "index.html"
    assert '<script src="../assets/mermaid.js">' in diagrams.read_text()
    assert "mermaid" in (site / "assets" / "mermaid.js").read_text()


def test_a_link_to_a_test_leads_to_its_line_in_the_repository(site: Path) -> None:
    """In the documents it leads to the file, as it has to on GitHub."""
    links = re.findall(
        r'href="https://github\.com/[^"]*/blob/main/(tests/[^"#]+\.py)#L(\d+)"',
        (site / "promises/index.html").read_text(),
    )
    assert links
    for path, line in links:
        assert (ROOT / path).read_text().splitlines()[int(line) - 1].lstrip().startswith(("def test_", "class Test"))


def names() -> dict[str, str]:
    """The pages that explain each option, alarm, subcommand and rule."""
    public = (getattr(cdk_intake_ledger, name) for name in cdk_intake_ledger.__all__)
    functions = (
        getattr(member, "__func__", member)
        for cls in public
        for name, member in vars(cls).items()
        if name == "__init__" or not name.startswith("_")
    )
    options = (
        one.name
        for function in functions
        if inspect.isfunction(function)
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    )
    commands.load()
    subcommands = (
        f"intake-ledger {one.name or getattr(one.callback, '__name__', '')}" for one in commands.app.registered_commands
    )
    return (
        dict.fromkeys(options, "api/")
        | {row.name: "runbooks/#" for row in ALARMS}
        | dict.fromkeys(subcommands, "operating/")
        | {rule.id: "validation/" for rule in all_rules()}
    )


def test_the_search_finds_each_name(site: Path) -> None:
    """Among the first results, as many as a reader sees: each option, alarm, subcommand and rule."""
    pages, script = names(), Path(__file__).with_name("search.mjs")
    assert len(pages) > 300
    command: list[str | Path] = ["node", script, site]
    done = subprocess.run(command, input=json.dumps(list(pages)), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    missing = {
        name: found[name][:FIRST] for name, page in pages.items() if not any(page in one for one in found[name][:FIRST])
    }
    assert missing == {}


def test_each_concept_has_a_picture() -> None:
    """Each section of the page of concepts has one diagram."""
    _, *sections = (ROOT / "docs" / "concepts.md").read_text().split("\n## ")
    assert len(sections) == 7
    assert [section.splitlines()[0] for section in sections if section.count("```mermaid\n") != 1] == []
