"""Hooks of the documentation site: links to files outside docs/, the repository's address, local diagrams, search.

The search prefers titles. A table with a name in the first cell of each row, or a list of rules, gets an entry with
this title for each row.
"""

import html
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
MERMAID = ROOT / "build" / "mermaid" / "node_modules" / "@mermaid-js" / "tiny" / "dist" / "mermaid.tiny.js"
TABLES = ("operating.md", "validation.md")
"""Pages whose tables name commands and codes in the first cells of their rows, or whose lists begin with rules."""
_TABLE = re.compile("<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>\s*<td>(.*?)</td>(.*?)</tr>", re.DOTALL)
_ITEM = re.compile(r"<li>(<code>[\w-]+</code>)(.*?)</li>", re.DOTALL)
_NAME = re.compile(r"<code>([\w-]+)[^<]*</code>")
_CODE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
_entries: list[dict[str, str]] = []
"""Names of tables, for the search."""
_LINK = re.compile(r"\]\((\.\./[^)\s#]+)(?:#([^)\s]+))?\)")


def on_config(config: Any) -> Any:
    """Link the repository, without its stars.

    Material's `repo_url` would ask GitHub's API for stars in each reader's browser.
    """
    _entries.clear()
    config.extra["social"] = [{"icon": "fontawesome/brands/github", "link": REPOSITORY, "name": "Repository"}]
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Turn each link to a file outside docs/ into an address in the repository. Headings and tests become lines."""
    docs = Path(config.docs_dir)

    def address(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link[1]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target.relative_to(ROOT)}{_fragment(target, link[2])})"

    parts = _CODE.split(markdown)
    parts[::2] = (_LINK.sub(address, text) for text in parts[::2])
    return "".join(parts)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load mermaid from the site itself. Material loads it from a public server where no script has defined it."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{"../" * page.url.count("/")}assets/mermaid.js"></script>'
    return output.replace("</body>", f"{script}</body>")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Give each name of a table an anchor and an entry of the search. A name's first row counts."""
    if page.file.src_uri not in TABLES:
        return content
    known = {entry["location"] for entry in _entries}

    def with_anchors(row: re.Match[str], command: str) -> str:
        anchors = ""
        for name in _NAME.findall(row[1]):
            location = f"{page.url}#{name}"
            if location not in known:
                known.add(location)
                anchors += f'<span id="{name}"></span>'
                text = html.unescape(re.sub("<[^>]+>", " ", row[2]))
                _entries.append({"location": location, "title": command + name, "text": " ".join(text.split())})
        return re.sub("^<li>|<td>", rf"\g<0>{anchors}", row[0], count=1)

    def of_table(table: re.Match[str]) -> str:
        command = "intake-ledger " if "<th>command</th>" in table[0] else ""
        return _ROW.sub(lambda row: with_anchors(row, command), table[0])

    content = _TABLE.sub(of_table, content)
    return _ITEM.sub(lambda item: with_anchors(item, ""), content) if "validation" in page.file.src_uri else content


def on_post_build(config: Any) -> None:
    """Copy mermaid into the site, and add the names of tables to the search, whose plugin has written its index."""
    site = Path(config.site_dir)
    shutil.copy(MERMAID, site / "assets" / "mermaid.js")
    index = site / "search" / "search_index.json"
    search = json.loads(index.read_text())
    search["docs"] += _entries
    index.write_text(json.dumps(search))


def _fragment(target: Path, name: str | None) -> str:
    if name is None:
        return ""
    if target.suffix != ".py":
        return f"#{name}"
    before, found, _ = re.split(rf"^ *(?:def|class) ({name})\b", target.read_text(), maxsplit=1, flags=re.MULTILINE)
    return f"#L{before.count(chr(10)) + 1}" if found else ""
