"""The deployed sets of files and the pipeline of their parts, with the uploads."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from tests.local.faults.judge import Report
from tests.local.faults.set_judge import Part, SetFacts, SetRow, SetsExpected, judge_sets
from tests.local.faults.world import Line, Sources

ROOT = Path(__file__).resolve().parents[3]


class Form(NamedTuple):
    """A form of sets in the runs."""

    title: str
    folder: str
    """The folder of all sets of this form."""
    last: str
    """The name of the object that describes or closes a set. Empty for folders that have to be quiet."""


MANIFESTS = Form("sets", "sets", "manifest.json")
MARKED = Form("sets with a marker", "marked", "_SUCCESS")
QUIET = Form("quiet folders", "quiet", "")


@dataclass(frozen=True)
class Collection:
    """The deployed sets of one form, and the pipeline of their parts."""

    parts: Line
    sets: Line
    name: str
    """The name of the sets in the ledger."""
    form: Form = MANIFESTS
    uploads: list[Part] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    """The time at which each of the uploads began, on the clock of the downstream's calls."""
    closed: dict[str, int] = field(default_factory=dict)
    """By set: the number of uploads before its first marker."""
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, world: Sources, outputs: Mapping[str, str], name: str, form: Form) -> Self:
        """Read the names from the stack's outputs."""
        parts, sets = (Line.of(world, outputs, line) for line in ("SetParts", name))
        return cls(parts, sets, outputs[f"{name}Name"], form)

    def key_of(self, folder: str) -> str:
        """Return the key of the set in this folder."""
        return f"{folder}/{self.form.last}"

    def is_set(self, key: str) -> bool:
        """Return whether this is the key of a set, and not of a part."""
        return key.endswith(f"/{self.form.last}")

    # -- acting --

    def put_part(self, key: str, copies: int = 0) -> None:
        """Upload unique content, and send S3's message about it `copies` more times."""
        content = f"{key} {time.monotonic_ns()}"
        with self._lock:
            # The order of the uploads is S3's order of the versions of a key.
            begun = time.monotonic()
            answer = self.parts.aws.client("s3").put_object(Bucket=self.parts.bucket, Key=key, Body=content.encode())
            self.uploads.append(Part(key, answer["VersionId"], content))
            self.begun.append(begun)
        if copies:
            self.parts.announce(key, answer["VersionId"], copies=copies)

    def close(self, folder: str, parts: Sequence[str], copies: int = 0) -> dict[str, list[str]]:
        """Upload a manifest with these parts, or a marker. Returns the key of the set, and its parts in their order."""
        key = self.key_of(folder)
        if self.form is QUIET:
            return {key: sorted(parts)}
        body = json.dumps([part.rpartition("/")[2] for part in parts]) if self.form is MANIFESTS else ""
        with self._lock:
            answer = self.parts.aws.client("s3").put_object(Bucket=self.parts.bucket, Key=key, Body=body.encode())
            self.closed.setdefault(key, len(self.uploads))
        if copies:
            self.parts.announce(key, answer["VersionId"], copies=copies)
        return {key: list(parts) if self.form is MANIFESTS else sorted(parts)}

    def put_all(self, folders: Sequence[str]) -> dict[str, list[str]]:
        """Upload sets, several at the same time. Returns the parts' keys of each manifest, in its order."""

        def put(numbered: tuple[int, str]) -> dict[str, list[str]]:
            number, folder = numbered
            # Not in the order of the keys.
            parts = [f"{folder}/{n}" for n in (1, 2, 0)]
            if number % 3 == 0:
                manifest = self.close(folder, parts, copies=1)
            for part in parts:
                self.put_part(part, copies=number % 2)
            return manifest if number % 3 == 0 else self.close(folder, parts)

        manifests: dict[str, list[str]] = {}
        with ThreadPoolExecutor(4) as pool:
            for manifest in pool.map(put, enumerate(folders)):
                manifests |= manifest
        return manifests

    def wake(self, key: str) -> None:
        """Send a copy of the message that wakes a set."""
        self.sets.aws.client("sqs").send_message(
            QueueUrl=self.sets.queue, MessageBody=own_message(Origin.PART, self.sets.bucket, key)
        )

    def take_messages(self, *, enabled: bool) -> None:
        """Let the function of the sets receive its messages, or not."""
        client = self.sets.aws.client("lambda")
        for mapping in client.list_event_source_mappings(FunctionName=self.sets.function)["EventSourceMappings"]:
            client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)

    def lose_messages(self) -> int:
        """Delete all messages that wake sets. Returns their number."""
        sqs, found = self.sets.aws.client("sqs"), 0
        while messages := sqs.receive_message(QueueUrl=self.sets.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                sqs.delete_message(QueueUrl=self.sets.queue, ReceiptHandle=message["ReceiptHandle"])
            found += len(messages)
        return found

    def audit(self) -> list[str]:
        """Audit the sets with a clock that is an hour ahead. Returns the keys of the sets that it woke.

        The audit leaves changes of the last hour alone.
        """
        aws = self.sets.aws
        function = aws.client("lambda").get_function_configuration(FunctionName=self.sets.function)
        variables = {
            name: value
            for name, value in function["Environment"]["Variables"].items()
            if name.startswith(("INTAKE_", "POWERTOOLS_"))
        }
        ended = subprocess.run(
            [sys.executable, "-m", "tests.local.faults.audit_ahead"],
            cwd=ROOT,
            env={**aws.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        findings: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        assert findings["complete"], findings
        return sorted(found["key"] for found in findings["findings"])

    # -- asking --

    def settled(
        self, prefix: str, manifests: Mapping[str, Sequence[str]], expected: SetsExpected, *, timeout: float
    ) -> Report:
        """Return the report when it has no problems, or when the queues are empty and the grace time is over."""

        def report(*, counted: bool) -> Report:
            downstream = self.parts.downstream
            killed = Counter(one.key for one in downstream.killed if "/after/" in one.key)
            calls = downstream.calls_of(prefix)
            here = [place for place, part in enumerate(self.uploads) if part.key.startswith(prefix)]
            facts = SetFacts(
                manifests=manifests,
                uploads=[self.uploads[place] for place in here],
                begun=[self.begun[place] for place in here],
                closed={key: sum(place < count for place in here) for key, count in self.closed.items()},
                parts={key: row for key, row in self.parts.rows(prefix).items() if not self.is_set(key)},
                rows=self.rows(prefix),
                letters=[letter for letter in self.sets.letters() if letter.key.startswith(prefix)],
                part_calls=[call for call in calls if not self.is_set(call.delivery.key)],
                set_calls=[call for call in calls if self.is_set(call.delivery.key)],
                verdicts=self.sets.verdicts(prefix) if counted else {},
            )
            return judge_sets(facts, replace(expected, killed=killed))

        late = self.parts.wait(self.parts.quiet, f"the parts under {prefix} are done with", timeout=timeout)
        found = self.sets.until_right(report, f"the sets under {prefix} are done with", timeout=timeout)
        return replace(found, problems=(*found.problems, *late))

    def rows(self, prefix: str) -> dict[str, SetRow]:
        """Return the rows of sets. The pipeline of the parts has rows of the manifests too."""
        return {
            key: SetRow(
                str(item["status"]),
                str(item.get("committed_state", "")).removeprefix("v#"),
                str(item.get("commit_id", "")),
                str(item.get("reason", "")),
            )
            for key, item in self.parts.items(prefix)
            if item["sk"] == f"{self.name}@latest" and "status" in item
        }
