"""Compare two runs of a processor, or a run with the commit of its file. Pure functions."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from intake_ledger.protocol.row import Row
from intake_ledger_cli.rehearsal.side import Outcome

COMMITTED = "committed"
_SHOWN = 120
"""The longest text of a value in a difference, in characters."""
type Differences = dict[str, str]
"""A text by the name of each thing that differs."""


def between(before: Outcome, after: Outcome) -> Differences:
    """All in which two runs differ."""
    found = dict(_ends(_end(before), _end(after)))
    if found:
        return found
    for name in ("result", "problem", "rows"):
        if before.get(name) != after.get(name):
            found[name] = _changed(name, before.get(name), after.get(name))
    for name in ("transact", "once"):
        if (one := before.get(name, [])) != (other := after.get(name, [])):
            found[name] = _lists(name, one, other)
    old, new = _by_name(before), _by_name(after)
    for name in sorted(old | new):
        if old.get(name) != new.get(name):
            found[name] = _outputs(name, old.get(name), new.get(name))
    return found


def with_row(row: Row, outcome: Outcome) -> Differences:
    """All in which a run differs from what the row keeps of its commit."""
    found = dict(_ends(COMMITTED, _end(outcome)))
    if found:
        return found
    if row.commit_id != outcome.get("result"):
        found["result"] = _changed("result", row.commit_id, outcome.get("result"))
    if bool(row.transactional) is not bool(outcome.get("transact")):
        words = {True: "with writes", False: "without writes"}
        transact = words[bool(row.transactional)], words[bool(outcome.get("transact"))]
        found["transact"] = _changed("transact", *transact)
    if row.settled_as is None and row.file_rows != outcome.get("rows"):
        found["rows"] = _changed("rows", row.file_rows, outcome.get("rows"))
    return found


def _end(outcome: Outcome) -> str:
    """How a run ended. The text of an error is a part of it."""
    return f"{outcome['end']} with {outcome['error']}" if outcome.get("error") else str(outcome["end"])


def _ends(before: str, after: str) -> Iterator[tuple[str, str]]:
    if before != after:
        yield "end", f"{_short(before)} -> {_short(after)}"


def _by_name(outcome: Outcome) -> dict[str, Mapping[str, Any]]:
    return {f"output s3://{one['bucket']}/{one['key']}": one for one in outcome["outputs"]}


def _outputs(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    if old is None or new is None:
        return f"{name}: {'is not written any more' if new is None else 'is new'}"
    described = [described_output(one["removed"], one["size"], one["contentType"]) for one in (old, new)]
    return f"{name}: {described_change(*described) or f'other content of {new["size"]:,} bytes'}"


def described_output(removed: bool, size: int, content_type: str | None) -> tuple[str, ...]:
    """The state, size and type of an output, as people read them."""
    return "removed" if removed else "written", f"{size:,} bytes", content_type or "none"


def described_change(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """The first thing in which the descriptions of an output differ. Empty: they are the same."""
    return next((f"{before} -> {after}" for before, after in zip(old, new, strict=True) if before != after), "")


def _lists(name: str, before: list[Any], after: list[Any]) -> str:
    gone = [one for one in before if one not in after]
    new = [one for one in after if one not in before]
    if not gone and not new:
        return f"{name}: {len(before)} -> {len(after)} elements"
    return _changed(name, _brief(gone, new), _brief(new, gone))


def _brief(mine: list[Any], other: list[Any]) -> Any:
    """The first element, or only its kind and its table if the other list has none to compare it with."""
    if mine and not other and isinstance(mine[0], dict):
        return ", ".join(f"{kind} of {request.get('TableName')}" for kind, request in mine[0].items())
    return mine[0] if mine else None


def _changed(name: str, before: Any, after: Any) -> str:
    while isinstance(before, dict) and isinstance(after, dict):
        # The first thing in it that differs, by its path.
        place = next(one for one in sorted(before | after) if before.get(one) != after.get(one))
        name, before, after = f"{name}.{place}", before.get(place), after.get(place)
    return f"{name}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
