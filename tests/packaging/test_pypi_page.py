"""The page of PyPI, which is in the metadata of the wheel."""

import email
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from scripts.hatch_readme import page
from trove_classifiers import classifiers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def tokens(text: str) -> Iterator[Token]:
    """All parts of a text in Markdown, with tables as on GitHub and PyPI."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


@pytest.mark.failure_mode("F222")
def test_each_link_is_absolute_and_leads_to_a_file_of_the_release(metadata: Message) -> None:
    """PyPI does not resolve relative links. A file of the repository is shown as of the tag."""
    text = str(metadata.get_payload())
    base = f"https://github.com/cdk-intake-ledger/cdk-intake-ledger/blob/v{metadata['Version']}/"
    targets = [str(token.attrs["href"]) for token in tokens(text) if token.type == "link_open"]
    assert len(targets) > 30
    assert [target for target in targets if not target.startswith("https://")] == []
    ours = [target.removeprefix(base).partition("#")[0] for target in targets if target.startswith(base)]
    assert [path for path in ours if not (ROOT / path).is_file()] == []
    assert [token.content for token in tokens(text) if token.type == "image"] == []


def test_there_is_no_diagram_that_pypi_cannot_draw(metadata: Message) -> None:
    """The blocks of code are of languages that it colours, and the tables are tables."""
    found = list(tokens(str(metadata.get_payload())))
    assert {token.info for token in found if token.type == "fence"} == {"python"}
    assert any(token.type == "table_open" for token in found)
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_links_and_diagrams_are_replaced_and_nothing_else() -> None:
    """An anchor of a page stays. The anchor of a test is for the documentation site."""
    links = "[a](docs/a.md#b) [✓](tests/t.py#test_a) [c](https://c.d/e) [f](#g)\n"
    readme = f"{links}```mermaid\nx\n```\n\n```python\nx[1](2)\n```\n"
    assert page(readme, "https://r/") == (
        "[a](https://r/docs/a.md#b) [✓](https://r/tests/t.py) [c](https://c.d/e) [f](https://r/README.md#g)\n"
        "[A diagram](https://r/README.md) shows the parts.\n\n```python\nx[1](2)\n```\n"
    )


def test_classifiers_and_addresses_are_known(metadata: Message) -> None:
    """PyPI refuses an unknown classifier, and shows these addresses with symbols."""
    assert set(metadata.get_all("Classifier", [])) <= classifiers
    addresses = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL", []))
    assert set(addresses) == {"Homepage", "Documentation", "Repository", "Changelog", "Issues"}
    assert all(address.startswith("https://") for address in addresses.values())
