"""Compare all sides with the content of S3 and with all operations on the bucket."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

from examples.catalogue.processor.catalogue import catalogue_name, describe
from examples.demo.script import POISON_KEY
from examples.harness.measures import Measure, is_right
from examples.harness.objects import Action

from intake_ledger import Unprocessable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from examples.demo.script import Script
    from examples.demo.wire import Wire
    from examples.demo.world import World

Entry = dict[str, Any]
NEVER = object()


@dataclass
class SideFacts:
    """The effects of one side, and its rows in the end."""

    rows: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    leftover: list[str] = field(default_factory=list)
    effects: int = 0
    repeated: list[str] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    removed_present: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    killed: int = 0
    killed_wrong: list[str] = field(default_factory=list)
    poison_explained: int = 0
    dead_letters: int = 0
    innocents: list[str] = field(default_factory=list)
    per_version: Counter[int] = field(default_factory=Counter)
    """The number of versions for each number of effects."""

    @property
    def bad_keys(self) -> set[str]:
        return {*self.wrong, *self.lost, *self.leftover}


@dataclass
class Result:
    """The whole outcome, for the terminal, for the page and for tests."""

    measures: list[Measure]
    facts: dict[str, SideFacts]
    verdicts: Counter[str]
    outcomes: Counter[str]
    examples: dict[str, Entry]
    """One log line for each verdict."""
    sent: Counter[str]
    """The number of messages that were sent, copied, late or lost: `sent`, `copy`, `late`, `lost`."""
    audits: list[Entry]
    objects: int
    versions: int
    by_story: dict[str, dict[str, int]]
    """For each story the number of its keys, and for each side the number of wrong ones."""

    @property
    def right(self) -> bool:
        """True if the ledger's column is right in every line."""
        return is_right(self.measures, "ledger")


def judge(world: World, script: Script, wire: Wire, audits: list[Entry]) -> Result:
    """Read objects, rows, logs and messages, and compare them."""
    keys = set(script.stories)
    current = what_s3_holds(world, keys)
    expected = {key: row for key, version in current.items() if (row := expected_row(world, key, version))}
    epochs = epochs_of(wire)
    versions = {(done.operation.key, done.version_id) for done in wire.done if done.operation.action is Action.PUT}
    versions = {(key, version) for key, version in versions if key in keys}
    noted = world.effects()
    facts = {}
    for side in world.sides:
        effects = [entry for entry in noted[side] if entry["key"] in keys]
        mine = facts[side] = SideFacts(effects=len(effects), killed=len(noted[f"{side}-killed"]))
        _compare_rows(world, side, keys, expected, mine)
        _compare_effects(effects, epochs, versions, mine)
        mine.killed_wrong = sorted({entry["at"] for entry in noted[f"{side}-killed"]} & mine.bad_keys)
        _look_at_dead_letters(world, side, mine)
    records = world.aws.records(world.outputs["ConsumerFunction"])
    verdicts = [record for record in records if "verdict" in record and record["key"] in keys]
    outcomes = Counter(r["message"] for r in records if "duration_ms" in r and r["key"] in keys)
    return Result(
        measures=_measures(facts, len(expected), _unsettled(world, keys, current), len(script.kill_keys), audits),
        facts=facts,
        verdicts=Counter(record["verdict"] for record in verdicts),
        outcomes=outcomes,
        examples=_examples(verdicts),
        sent=Counter(delivery.what for delivery in wire.deliveries),
        audits=audits,
        objects=len(expected),
        versions=len(versions),
        by_story=_by_story(script, facts),
    )


def what_s3_holds(world: World, keys: set[str]) -> dict[str, Entry]:
    """Return the newest entry of S3's listing for each key: a version, a delete marker (`marker`), or nothing."""
    found: dict[str, Entry] = {key: {"VersionId": None, "marker": True} for key in keys}
    for page in world.aws.client("s3").get_paginator("list_object_versions").paginate(Bucket=world.bucket):
        for kind, marker in (("Versions", False), ("DeleteMarkers", True)):
            for item in page.get(kind, ()):
                if item["IsLatest"] and item["Key"] in keys:
                    found[item["Key"]] = {"VersionId": item["VersionId"], "ETag": item.get("ETag"), "marker": marker}
    return found


def expected_row(world: World, key: str, version: Mapping[str, Any]) -> Entry | None:
    """Return the row for the current content in S3, or None if there must be no row."""
    if version["marker"]:
        return None
    answer = world.aws.client("s3").get_object(Bucket=world.bucket, Key=key, VersionId=version["VersionId"])
    try:
        facts = describe(key, answer["Body"].read())
    except Unprocessable:
        return None
    return {"version_id": version["VersionId"], "etag": version["ETag"].strip('"'), **facts}


def epochs_of(wire: Wire) -> dict[str, list[str | None]]:
    """Return the states of each key in their order: a version, or None for a missing object."""
    epochs: dict[str, list[str | None]] = defaultdict(list)
    for done in wire.done:
        states = epochs[done.operation.key]
        if not states or states[-1] != done.current:
            states.append(done.current)
    return epochs


def _compare_rows(world: World, side: str, keys: set[str], expected: Mapping[str, Entry], facts: SideFacts) -> None:
    rows = {row.pop("service"): row for row in world.items(world.table(side))}
    for key in sorted(keys):
        row, wanted = rows.get(catalogue_name(key)), expected.get(key)
        facts.rows += row is not None
        if row is None and wanted is not None:
            facts.lost.append(key)
        elif row is not None and wanted is None:
            facts.leftover.append(key)
        elif row != wanted:
            facts.wrong.append(key)


def _compare_effects(
    effects: Sequence[Entry],
    epochs: Mapping[str, list[str | None]],
    versions: set[tuple[str, str]],
    facts: SideFacts,
) -> None:
    by_key: dict[str, list[Entry]] = defaultdict(list)
    for entry in effects:
        by_key[entry["key"]].append(entry)
    for key, entries in by_key.items():
        reached, before, astray = -1, NEVER, False
        for entry in entries:
            state = entry["version"] if entry["kind"] == "created" else None
            if state == before:
                facts.repeated.append(key)
                continue
            before = state
            # The most lenient rule: find this state among the states that S3 showed after the last applied one.
            # A return to the last right state is not a second mistake.
            later = [n for n, epoch in enumerate(epochs[key]) if epoch == state and n >= reached + (not astray)]
            astray = not later
            if later:
                reached = later[0]
            elif state is None:
                facts.removed_present.append(key)
            else:
                facts.backwards.append(key)
        for one, other in itertools.combinations(entries, 2):
            apart = one["ended"] <= other["started"] or other["ended"] <= one["started"]
            if one["pid"] != other["pid"] and not apart:
                facts.overlapping.append(key)
    counted = Counter((entry["key"], entry["version"]) for entry in effects if entry["kind"] == "created")
    facts.per_version = Counter(counted[version] for version in versions)


def _look_at_dead_letters(world: World, side: str, facts: SideFacts) -> None:
    for message in world.messages(world.dead_letters(side)):
        facts.dead_letters += 1
        keys = [unquote_plus(r["s3"]["object"]["key"]) for r in json.loads(message["Body"]).get("Records", ())]
        attributes = message.get("MessageAttributes", {})
        if "key" in attributes and not keys:
            keys = [unquote(attributes["key"]["StringValue"])]
        if keys == [POISON_KEY]:
            facts.poison_explained += bool(attributes.get("reason", {}).get("StringValue"))
        else:
            facts.innocents += keys or ["(no key)"]


def _unsettled(world: World, keys: set[str], current: Mapping[str, Entry]) -> int:
    """Count the keys whose row neither has S3's current state as the committed one nor a reason."""
    rows = {row["pk"]: row for row in world.items(world.outputs["LedgerTable"]) if row["sk"].endswith("@latest")}
    unsettled = 0
    for key in keys:
        row = rows.get(f"{world.bucket}/{key}", {})
        version = current[key]["VersionId"]
        if key == POISON_KEY:
            settled = row.get("status") == "REJECTED" and bool(row.get("reason"))
        else:
            wanted = f"v#{version}" if version else "absent"
            settled = row.get("status") == "PROCESSED" and row.get("committed_state") == wanted
        unsettled += not settled
    return unsettled


def _measures(
    facts: Mapping[str, SideFacts], objects: int, unsettled: int, kills: int, audits: Sequence[Entry]
) -> list[Measure]:
    def each(name: str, count: Callable[[SideFacts], int], right: int, explanation: str) -> Measure:
        return Measure(name, {side: count(one) for side, one in facts.items()}, right, explanation)

    def ours(name: str, value: int | None, explanation: str) -> Measure:
        return Measure(name, dict.fromkeys(facts) | {"ledger": value}, 0, explanation)

    left = sum(audits[-1]["counts"].values()) if audits else None
    return [
        each("rows in the catalogue", lambda f: f.rows, objects, "the number of objects in S3"),
        each("wrong rows", lambda f: len(f.wrong), 0, "the row does not match the content in S3"),
        each("lost rows", lambda f: len(f.lost), 0, "the object exists, but no row"),
        each("rows of deleted objects", lambda f: len(f.leftover), 0, "a row exists, but no object"),
        each("effects repeated", lambda f: len(f.repeated), 0, "the same state was applied twice in a row"),
        each("effects that went backwards", lambda f: len(f.backwards), 0, "an older version over a newer one"),
        each("rows removed while the object existed", lambda f: len(f.removed_present), 0, "a late or misread removal"),
        each("two workers on one key at once", lambda f: len(f.overlapping), 0, "their effects overlapped in time"),
        each("workers killed", lambda f: f.killed, kills, "by SIGKILL, with the message, before the effect"),
        each(
            "files wrong after their worker was killed", lambda f: len(f.killed_wrong), 0, "the next attempt repairs it"
        ),
        each(
            "malformed file dead-lettered with its reason",
            lambda f: f.poison_explained,
            1,
            "in the dead-letter queue, once",
        ),
        each(
            "unaffected files' messages in the DLQ", lambda f: len(f.innocents), 0, "failed together with another file"
        ),
        ours("keys that the ledger has not settled", unsettled, "the row names the state that S3 shows"),
        ours("left for a further audit", left, "the last audit run finds nothing"),
    ]


def _examples(verdicts: Sequence[Entry]) -> dict[str, Entry]:
    """Return a typical log line for each verdict: one with the most frequent explanation."""
    frequent = Counter((record["verdict"], record.get("why")) for record in verdicts)
    chosen: dict[str, Entry] = {}
    for record in sorted(verdicts, key=lambda record: -frequent[record["verdict"], record.get("why")]):
        chosen.setdefault(record["verdict"], record)
    return chosen


def _by_story(script: Script, facts: Mapping[str, SideFacts]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for key, story in script.stories.items():
        line = table.setdefault(story, {"keys": 0, **dict.fromkeys(facts, 0)})
        line["keys"] += 1
        for side in facts:
            line[side] += key in facts[side].bad_keys
    return dict(sorted(table.items(), key=lambda item: (-item[1]["naive"] / item[1]["keys"], item[0])))
