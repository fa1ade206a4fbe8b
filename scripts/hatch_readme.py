"""Makes the page of PyPI from README.md: absolute links, and a link instead of the diagram, which PyPI does not draw.

Hatchling loads this file when it builds a distribution (`tool.hatch.metadata.hooks.custom` in pyproject.toml).
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
_BLOCK = re.compile(r"(^```.*?^```\n)", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


def page(readme: str, base: str) -> str:
    """Return the text of PyPI's page.

    Args:
        readme: the text of README.md.
        base: the URL of the repository's files at the released tag, which ends with a slash.

    """

    def absolute(found: re.Match[str]) -> str:
        path, anchor = found[1] or "README.md", found[2] or ""
        # The anchor names a test for the site's build. GitHub does not know it.
        return f"]({base}{path}{'' if path.endswith('.py') else anchor})"

    text = _DIAGRAM.sub("[A diagram](README.md) shows the parts.\n", readme)
    # Each second part is a block of code.
    return "".join(part if place % 2 else _LINK.sub(absolute, part) for place, part in enumerate(_BLOCK.split(text)))


class ReadmeHook(MetadataHookInterface):
    """Sets the field `readme` of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write the page into the metadata. The links lead to the tag of the version."""
        base = f"{metadata['urls']['Repository']}/blob/v{metadata['version']}/"
        text = page(Path(self.root, "README.md").read_text(encoding="utf-8"), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
