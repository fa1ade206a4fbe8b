"""Stories of one set, as text: uploads, removals and time, and the calls of the set's processor.

    a part that is removed alone makes a version after the quiet time
        marker, quiet: finished a b c; delete b; run 6 min; runs a b c; run; runs a b c, a c

A story begins with its forms: `manifest`, `marker`, `quiet` (600 seconds) or `each form`, and is told once for each.
`max wait 6 h` and `without versions` may follow. A name is a key in `exports/1/`, or a whole one (`exports/2/a`).
The steps are:

- `put a b as TEXT`: upload parts. `upload a`: the same, and its event is late. `replicate a of 30 d`: with a
  Last-Modified 30 days ago. `delete a`: without a version. `expire a`: as a lifecycle rule does.
- `list a b`: upload the manifest with these parts. `replicate list a b of 40 d`. `close`: upload the marker.
- `finished a b`: all of it, with the call of the processor that follows.
- `wait 2 h`, `run`, `run 2 h`: let time pass, in `s`, `min`, `h` or `d`. `parts run`: process the parts alone.
- `parts fail`, `parts work`: what the processor of the parts does from now on. `rejects`: the same for the set's.
- `ask`: a person asks for the set. `ask a`: for a part. `wake a b`: a wake that names these parts comes late.
- `lose wakes`: empty the queue of the sets. `rows expire`: let TTL delete all rows.
- `runs a b, a@2`: compare the calls of the processor until now, and with `@2` that a part is in its second version.
  `runs` alone is no call, and `-` a call without parts. `versions 1 2 1`: which calls have the same version of the set.
- `within 30 s`, `within 8 to 12 min`: the time from the last upload or removal to the last call.
- `PROCESSED`, `REJECTED max_wait`, `waits`, `no row`, `served`: the set's row. The last is about the last request.
  `reason TEXT` is a part of its reason, where `{a}` is a key.
- `no dead letters`, `dead letter max_wait`, `never waited`, `STALE` (once since the last wake, removal or request).
- `audit wakes set`, `audit wakes nothing`, `audit checks 1`, `audit sees no wait`.
- `removed a`: the removal of a part is committed.

After each step, the processor of the parts has never got the manifest or the marker.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from intake_ledger import Unprocessable
from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.ulids import ulid
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger_testing.local_settings import BUCKET
from tests.unit.sets.bench import MAX_WAIT, Run, SetBench
from tests.unit.stories import milliseconds
from tests.unit.support import DAY, SECOND

FOLDER = "exports/1/"
FORMS = {
    "manifest": FormSettings(FormKind.MANIFEST, "**/manifest.json"),
    "marker": FormSettings(FormKind.MARKER, "exports/*/_SUCCESS"),
    "quiet": FormSettings(FormKind.QUIET, "exports/*/", quiet_seconds=600),
}
SET_KEYS = {"manifest": f"{FOLDER}manifest.json", "marker": f"{FOLDER}_SUCCESS", "quiet": FOLDER}


def tell(text: str) -> None:
    """Play a story for each form that it names."""
    head, _, steps = text.partition(": ")
    options = head.split(", ")
    forms = FORMS if "each form" in options else [form for form in FORMS if form in options]
    assert forms, "no form"
    waits = [milliseconds(one.split()[2:]) // SECOND for one in options if one.startswith("max wait ")]
    for form in forms:
        bench = SetBench(FORMS[form], versioned="without versions" not in options, max_wait=(waits or [MAX_WAIT])[0])
        SetStory(form, bench).play(steps)


def expire_rows(bench: SetBench) -> None:
    """Let all rows expire. The items that say in which manifest a part is listed stay."""
    bench.now += 40 * DAY
    bench.dynamodb.items = {key: item for key, item in bench.dynamodb.items.items() if "set_key" in item}


def runs(bench: SetBench) -> list[list[str]]:
    """The keys of the parts of each call."""
    return [[key for key, _ in run.parts] for run in bench.runs]


def _raise(*_: object) -> None:
    raise Unprocessable("not a CSV")


def _key(name: str) -> str:
    return name if name.startswith(("exports/", "other")) else FOLDER + name


@dataclass
class SetStory:
    """The uploads until now."""

    form: str
    bench: SetBench
    uploads: dict[str, list[str | None]] = field(default_factory=dict)
    """The versions of each key."""
    changed_at: int = 0
    began_at: int = 0
    request: str = ""
    verdicts: Counter[str] = field(default_factory=Counter)

    def play(self, text: str) -> None:
        """Take each step."""
        self.began_at = self.bench.now
        for step in filter(None, map(str.strip, text.split(";"))):
            try:
                self._step(step)
                assert self.set_key not in self.bench.part_calls
            except AssertionError as error:
                raise AssertionError(f"{self.form}: {step}: {error}") from error

    @property
    def set_key(self) -> str:
        """The key of the set's row."""
        return SET_KEYS[self.form]

    def _step(self, step: str) -> None:
        bench = self.bench
        match step.split():
            case ["put", *names, "as", content]:
                self._put(names, content)
            case ["put", *names]:
                self._put(names)
            case ["upload", name]:
                bench.s3.put(_key(name), b"its event is late")
            case ["replicate", "list", *names, "of", days, "d"]:
                bench.put_replica(self.set_key, json.dumps(names), days=int(days))
            case ["replicate", *names, "of", days, "d"]:
                for name in names:
                    bench.put_replica(_key(name), "replica", days=int(days))
                self._changed()
            case ["delete", name]:
                bench.delete(_key(name))
                self._changed()
            case ["expire", name]:
                bench.expire(_key(name))
            case ["list", *names]:
                self._upload(self.set_key, json.dumps(names))
            case ["close"]:
                self._close([])
            case ["finished", *names]:
                self._put(names)
                self._close(names)
                bench.run()
                self._check_runs([" ".join(names)])
            case ["parts", "run"]:
                bench.parts.run()
            case ["parts", "fail"]:
                bench.process_part = _raise
            case ["parts", "work"]:
                bench.process_part = lambda _: None
            case ["rejects"]:
                bench.process = _raise
            case ["ask", *names]:
                self.request = ulid(bench.now, 0)
                asked: list[tuple[Any, str]] = [(bench.parts, _key(name)) for name in names] or [(bench, self.set_key)]
                for queue, key in asked:
                    queue.send(own_message(Origin.REPROCESS, BUCKET, key, reprocess_id=self.request))
                self._changed()
            case ["wake", *names]:
                bench.send(own_message(Origin.PART, BUCKET, self.set_key, parts=[*map(_key, names)]))
                self._changed()
            case ["lose", "wakes"]:
                bench.lose_wakes()
            case ["rows", "expire"]:
                expire_rows(bench)
            case ["wait", *time]:
                bench.now += milliseconds(time)
            case ["run", *time]:
                bench.run(milliseconds(time) / 3_600_000 if time else None)
            case _:
                self._check(step)

    def _check(self, step: str) -> None:
        bench = self.bench
        match step.split():
            case ["runs", *_]:
                self._check_runs([one.strip() for one in step.removeprefix("runs").split(",") if one.strip()])
            case ["versions", *numbers]:
                same = {(one, other) for one in range(len(numbers)) for other in range(len(numbers))}
                found = [run.version for run in bench.runs]
                assert all((numbers[a] == numbers[b]) is (found[a] == found[b]) for a, b in same), found
            case ["within", *time]:
                *low, high = " ".join(time[:-1]).split(" to ")
                taken = bench.runs[-1].at - self.changed_at
                assert milliseconds([(low or ["0"])[0], time[-1]]) <= taken < milliseconds([high, time[-1]]), taken
            case ["ended", low, "to", high, unit]:
                taken = bench.now - self.began_at
                assert milliseconds([low, unit]) <= taken < milliseconds([high, unit]), taken
            case ["waits"]:
                assert bench.known(self.set_key).waiting_since is not None
            case ["no", "row"]:
                assert bench.row(self.set_key) is None
            case ["served"]:
                assert bench.known(self.set_key).served_reprocess_id == self.request
            case ["reason", *_]:
                wanted = re.sub(r"{(.+?)}", lambda name: _key(name[1]), step.removeprefix("reason "))
                reason = str(bench.known(self.set_key).reason)
                assert wanted in reason, reason
            case ["no", "dead", "letters"]:
                assert bench.dead_letters == []
            case ["dead", "letter", code]:
                assert bench.dead_letters[-1].attributes["reason_code"] == code
            case ["never", "waited"]:
                assert bench.outcomes["Waiting"] == 0
            case ["STALE"]:
                assert bench.verdicts["STALE"] == self.verdicts["STALE"] + 1
            case ["audit", "wakes", what]:
                assert bench.run_audit().woken == ([] if what == "nothing" else [self.set_key])
            case ["audit", "checks", number]:
                assert bench.run_audit(dry_run=True).checked == int(number)
            case ["removed", name]:
                row = bench.part_row(_key(name))
                assert row is not None
                assert (row.status, row.committed_state) == (Status.PROCESSED, row.identity)
            case ["audit", "sees", "no", "wait"]:
                assert bench.run_audit().oldest_waiting_ms is None
            case [status, *code] if status.isupper():
                row = bench.known(self.set_key)
                assert row.status is Status[status], row.reason
                assert not code or [row.reason_code] == code
            case _:
                raise AssertionError("no step")

    def _changed(self) -> None:
        self.changed_at = self.bench.now
        self.verdicts = Counter(self.bench.verdicts)

    def _upload(self, key: str, content: str) -> None:
        self.uploads.setdefault(key, []).append(self.bench.put(key, content))
        self._changed()

    def _put(self, names: list[str], content: str = "content") -> None:
        for name in names:
            self._upload(_key(name), content)

    def _close(self, names: list[str]) -> None:
        if self.form != "quiet":
            self._upload(self.set_key, json.dumps(names) if self.form == "manifest" else "")

    def _check_runs(self, wanted: list[str]) -> None:
        parts = [[] if one == "-" else one.split() for one in wanted]
        found = runs(self.bench)
        keys = [[_key(name.partition("@")[0]) for name in one if not name.startswith("list@")] for one in parts]
        assert found == keys, found
        assert {run.key for run in self.bench.runs} <= {self.set_key}
        for names, run in zip(parts, self.bench.runs, strict=True):
            for name in names:
                self._check_version(name, run)

    def _check_version(self, name: str, run: Run) -> None:
        key, _, number = name.partition("@")
        versions: dict[str, Any] = {**dict(run.parts), "list": run.manifest}
        if number:
            uploads = self.uploads[self.set_key if key == "list" else _key(key)]
            assert versions[key if key == "list" else _key(key)] == uploads[int(number) - 1], name
