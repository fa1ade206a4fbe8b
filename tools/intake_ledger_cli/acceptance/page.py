"""Renders the report of an acceptance run as HTML."""

from collections.abc import Iterator

from intake_ledger_cli import formatting, page_parts
from intake_ledger_cli.acceptance.document import AcceptanceReport, Outcome, Result, counts, dollars
from intake_ledger_cli.page_parts import Cell, Html, text
from intake_ledger_cli.page_style import document

_STYLES = {Result.PASSED: "good", Result.FAILED: "bad", Result.NOT_HERE: "warning"}


def render(report: AcceptanceReport) -> str:
    """Return the page. It has no script and refers to no other file."""
    return document(f"Acceptance of cdk-intake-ledger {report.release}", "\n".join(_sections(report)))


def _sections(report: AcceptanceReport) -> Iterator[str]:
    yield f"<h1>Acceptance of cdk-intake-ledger {text(report.release)}</h1>"
    place = "a local AWS. It says nothing about AWS" if report.local else f"AWS in {report.region}"
    when = f"{formatting.timestamp(report.started_at)} to {formatting.timestamp(report.ended_at)}"
    yield f'<p class="dim">Run {text(report.run)} on {text(place)}, {when}. Times are in UTC.</p>'
    style = "bad" if report.failed else "good"
    yield f'<p class="verdict"><span class="{style}">{text(counts(report.outcomes))}</span></p>'
    if report.interrupted:
        yield '<p class="bad">The run was interrupted.</p>'
    if report.left:
        yield f'<p class="bad">Not removed: {text(", ".join(report.left))}.</p>'
    headings = ("Check", "Shows", "Assumptions", "Result", "Evidence or reason", "Time")
    yield f'<h2>Checks</h2><div class="card">{page_parts.table(headings, map(_row, report.outcomes))}</div>'
    lines: list[list[Cell]] = [[one.what, f"{one.count:,.0f}", f"{one.dollars:.4f}"] for one in report.estimate]
    total = f"At most {dollars(report.estimate):.2f} dollars, by the prices of us-east-1."
    yield f"<h2>Cost</h2><p>{total}</p>"
    yield f'<div class="card">{page_parts.table(("Of", "Number", "Dollars"), lines)}</div>'


def _row(outcome: Outcome) -> list[Cell]:
    result = Html(f'<span class="{_STYLES[outcome.result]}">{outcome.result}</span>', "t")
    time = Html(formatting.duration(int(outcome.seconds * 1000)), "t")
    ids = ", ".join(outcome.assumptions)
    return [outcome.name, outcome.shows, ids, result, Html(text(outcome.detail), "any"), time]
