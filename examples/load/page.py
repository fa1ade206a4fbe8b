"""Write the page: one HTML file without other files. Every number on it is from the run."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from examples.demo.charts import paired_bars
from examples.harness import measures
from examples.load.chart import gaps_chart, span
from examples.load.gaps import ARTICLE
from examples.page_parts import tiles
from examples.page_style import STYLE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from examples.load.judge import Result

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Facts:
    """The events of a run, without its result."""

    seconds: float
    scale: int
    seed: int
    files: int
    tapped: int
    """Messages that S3 sent."""
    sent: Counter[str]
    """The number of messages that were sent, copied, late or lost."""
    gaps: Sequence[float]
    ages: Sequence[float]
    audits: Sequence[Mapping[str, Any]]
    outcomes: Mapping[str, Mapping[str, Counter[str]]]


def write_page(path: Path, result: Result, facts: Facts, judged: str) -> None:
    """Write the page to `path`."""
    path.write_text(
        Template((HERE / "page.html").read_text()).substitute(
            style=STYLE,
            subtitle=escape(
                f"{facts.files} CSV files of {result.customers} customers, {result.rows:,} rows at the end; "
                f"seed {facts.seed}; {facts.seconds:.0f} seconds after the deployment."
            ),
            verdict=_verdict(result, judged),
            tiles=_tiles(facts),
            measures=measures.html(list(result.columns), result.measures, absent="has none"),
            stories=_stories(result),
            gaps=gaps_chart(facts.gaps, facts.ages, scale=facts.scale),
            gaps_text=escape(_gaps_text(facts)),
            article=ARTICLE.removeprefix("https://"),
            loader=escape((HERE / "functions" / "orders.py").read_text()),
            naive=escape((HERE / "functions" / "naive.py").read_text()),
        )
    )


def _verdict(result: Result, judged: str) -> str:
    parts = []
    for side, column in result.columns.items():
        right = result.is_right(side)
        text = f"{side}: {column.customers_right} of {result.customers} customers have the right counts."
        parts.append(f'<span class="{"good" if right else "bad"}">{escape(text)}</span>')
    end = "" if result.is_right(judged) else f' <span class="bad">The column of {judged} is wrong.</span>'
    return " ".join(parts) + end


def _tiles(facts: Facts) -> str:
    audited = sum(sum(report["counts"].values()) for report in facts.audits)
    died = max((sum(counts.total() for counts in kinds.values()) for kinds in facts.outcomes.values()), default=0)
    refused = facts.outcomes["ledger"]["late"]["refused"] if "ledger" in facts.outcomes else 0
    numbers = (
        (facts.tapped, "messages of S3"),
        (facts.sent["copy"] + facts.sent["late"], "of them again"),
        (facts.sent["lost"], "messages lost"),
        (audited, "differences that the audit found"),
        (died, "workers of each side killed in a transaction"),
        (refused, "late transactions refused by the fence"),
    )
    return tiles((f"{number:,}", what, "") for number, what in numbers)


def _stories(result: Result) -> str:
    lines = sorted(result.by_story.items(), key=lambda line: (-line[1]["naive"] / line[1]["files"], line[0]))
    return paired_bars(
        [(story, line.get("ledger", 0), line["naive"]) for story, line in lines],
        of=[line["files"] for _, line in lines],
        unit="files with wrong rows",
    )


def _gaps_text(facts: Facts) -> str:
    if not facts.ages:
        return "Nothing measured the age of duplicates in this run."
    return (
        f"DuplicateAge was {span(min(facts.ages))} to {span(max(facts.ages))}. In S3, at the scale 1:{facts.scale}, "
        f"the longest is {span(max(facts.ages) * facts.scale)}."
    )
