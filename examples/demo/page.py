"""Write the page: one HTML file without other files. Every number on it is from the run's result."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from examples.demo.charts import paired_bars, single_bars
from examples.demo.timeline import timeline
from examples.demo.world import SIDES
from examples.harness import measures
from examples.page_parts import Html, key, table, text, tiles
from examples.page_style import POLICY, STYLE

if TYPE_CHECKING:
    from examples.demo.judge import Result
    from examples.demo.run import Native
    from examples.demo.script import Script
    from examples.demo.wire import Wire
    from examples.demo.world import World

HERE = Path(__file__).parent
MEANINGS = {
    "ACCEPTED": "this state is not the committed one: the processor runs",
    "DUPLICATE": "this change was committed before",
    "STALE": "S3 shows a state that is already committed",
    "BUSY": "another worker holds the key: the message returns later",
    "REJECTED": "this state was rejected, and its message is in the dead-letter queue",
    "EXHAUSTED": "all attempts are used up",
    "SETTLED": "a removal that is recorded without the processor",
}


def write_page(
    path: Path, *, world: World, script: Script, wire: Wire, native: Native, result: Result, seconds: float
) -> None:
    """Write the page to `path`."""
    records = world.aws.records(world.outputs["ConsumerFunction"])
    path.write_text(
        Template((HERE / "page.html").read_text()).substitute(
            style=STYLE,
            policy=POLICY,
            subtitle=escape(
                "The intake ledger and a typical hand-written consumer of S3, SQS and Lambda. "
                f"{result.versions} uploads to {len(script.stories)} keys, seed {script.seed}; "
                f"{seconds:.0f} seconds, deployment included."
            ),
            verdict=_verdict(result),
            tiles=_tiles(result),
            measures=measures.html(list(result.measures[0].values), result.measures, absent="does not know"),
            effects_chart=_effects_chart(result),
            stories_chart=paired_bars(
                [(story, line["ledger"], line["naive"]) for story, line in result.by_story.items()],
                of=[line["keys"] for line in result.by_story.values()],
                unit="keys with a wrong row",
            ),
            decisions=f"{result.verdicts.total():,}",
            verdict_chart=single_bars([(v.lower(), n) for v, n in result.verdicts.most_common()], unit="decisions"),
            verdict_table=_verdict_table(result),
            hot_key=escape(script.hot_key),
            hot_text=_hot_text(wire, script.hot_key),
            timeline=timeline(wire, script.hot_key, world.effects(), records),
            course=_course(wire, native, result),
            naive_source=escape((HERE / "functions" / "naive.py").read_text()),
        )
    )


def _verdict(result: Result) -> str:
    bad = {side: len(result.facts[side].bad_keys) for side in SIDES}
    naive = f"The naive consumer: {bad['naive']} of {len_keys(result)} keys wrong in the end."
    if result.right:
        return f'<span class="good">The ledger is right in every line.</span> {naive}'
    return f'<span class="bad">The ledger is NOT right: {bad["ledger"]} keys wrong, see the table.</span> {naive}'


def len_keys(result: Result) -> int:
    """Return the number of keys."""
    return sum(line["keys"] for line in result.by_story.values())


def _tiles(result: Result) -> str:
    audited = sum(sum(report["counts"].values()) for report in result.audits)
    numbers = (
        (result.versions, "versions uploaded"),
        (result.objects, "objects in S3 at the end"),
        (sum(result.sent.values()) - result.sent["lost"], "messages to each queue"),
        (result.sent["copy"] + result.sent["late"], "of them a second time"),
        (result.sent["lost"], "messages lost"),
        (audited, "losses found by the audit"),
    )
    return tiles((f"{number:,}", what, "") for number, what in numbers)


def _effects_chart(result: Result) -> str:
    counts = [result.facts[side].per_version for side in SIDES]
    labels = {0: "never (overtaken, deleted or lost)", 1: "once", 2: "twice", 3: "three times", 4: "more often"}
    ledger, naive = (
        Counter({n: sum(c for m, c in count.items() if min(m, 4) == n) for n in labels}) for count in counts
    )
    rows = [(label, ledger[n], naive[n]) for n, label in labels.items() if ledger[n] or naive[n]]
    return paired_bars(rows, unit="versions")


def _verdict_table(result: Result) -> str:
    rows = [
        (verdict, count, MEANINGS.get(verdict, ""), _example(result.examples[verdict]))
        for verdict, count in result.verdicts.most_common()
    ]
    return table(("Verdict", "times", "means", "for example"), rows)


def _example(record: dict[str, Any]) -> Html:
    lag = record.get("event_age_ms")
    told = "" if lag is None else f", {lag / 1000:.1f} s after it happened"
    why = f'<span class="dim">{text(str(record.get("why") or ""))}</span>'
    return Html(f"{key(record['key']).content}<br>{text(str(record['event_name']))}{told}<br>{why}", "any")


def _hot_text(wire: Wire, key: str) -> str:
    operations = [done for done in wire.done if done.operation.key == key]
    told = [delivery.what for delivery in wire.deliveries if delivery.done.operation.key == key]
    puts = sum(done.event_name == "ObjectCreated:Put" for done in operations)
    return (
        f"{puts} versions uploaded, {len(operations) - puts} removals of one kind or another. Of the messages, "
        f"{told.count('sent')} came, {told.count('copy') + told.count('late')} came a second time, "
        f"{told.count('lost')} never came."
    )


def _course(wire: Wire, native: Native, result: Result) -> str:
    ledger, naive = (result.facts[side] for side in SIDES)
    sent = result.sent
    native_text = (
        f"{native.right} of {native.files} files went through S3's own notification, SQS and Lambda into the "
        f"catalogue; median {native.median_seconds:.1f} s from upload to effect, a cold start included."
    )
    wire_text = (
        f"S3 sent {wire.tapped:,} messages. To each queue went {sent['sent']:,}, {sent['copy']} of them twice within "
        f"seconds, and {sent['late']} again after newer versions had been processed; {sent['lost']} were lost."
    )
    endings = ", ".join(f"{count:,} {outcome}" for outcome, count in result.outcomes.most_common())
    effects_text = (
        f"The ledger had {ledger.effects:,}, the naive consumer {naive.effects:,}. The ledger's claims ended as: "
        f"{endings}; {ledger.killed} were cut short by SIGKILL."
    )
    dead_text = (
        f"Ledger: {ledger.dead_letters}, with the reason as an attribute. Naive: {naive.dead_letters}, without; "
        f"{len(naive.innocents)} of them about unaffected files."
    )
    lines = [
        ("Stage 1: direct delivery", native_text),
        ("Stage 2: the wire", wire_text),
        ("Effects", effects_text),
        ("Dead letters", dead_text),
    ]
    for n, report in enumerate(result.audits, start=1):
        kinds = ", ".join(f"{count} {kind}" for kind, count in report["counts"].items() if count) or "nothing"
        found = f"{report['checked']:,} keys compared with S3's listing, found: {kinds}"
        lines.append((f"Audit, run {n}", f"{found}; {report['resubmitted']} messages sent."))
    return table((), lines)
