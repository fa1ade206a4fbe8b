"""Draw the history of one key: its states in S3, the messages about it, and the effects of each side."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Any

from examples.demo.world import SIDES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from examples.demo.wire import Wire

WIDTH = 1180
LEFT, RIGHT = 150, 36
LONGEST_GAP = 2_500
"""Milliseconds. A longer time without events is drawn with this length and a mark."""
BAND, LANE, DOT = 30, 22, 9


@dataclass(frozen=True, slots=True)
class Point:
    """An event, in the lane of its kind."""

    at: int
    lane: str
    label: str
    tip: str
    style: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A state with its start and end."""

    start: int
    end: int
    label: str
    style: str
    tip: str


class Axis:
    """Convert epoch milliseconds to positions in the picture. Long times without events are cut out."""

    def __init__(self, moments: Sequence[int]) -> None:
        self._moments = sorted(set(moments))
        drawn = [0]
        self.cuts: list[tuple[int, int]] = []
        for one, other in itertools.pairwise(self._moments):
            gap = other - one
            if gap > LONGEST_GAP * 1.5:
                self.cuts.append((one, other))
                gap = LONGEST_GAP
            drawn.append(drawn[-1] + gap)
        self._drawn = drawn
        self._scale = (WIDTH - LEFT - RIGHT) / max(1, drawn[-1])
        self.start = self._moments[0]

    def __call__(self, moment: float) -> float:
        if moment <= self._moments[0]:
            return LEFT
        for n, (one, other) in enumerate(itertools.pairwise(self._moments)):
            if moment <= other:
                share = (moment - one) / (other - one)
                return LEFT + self._scale * (self._drawn[n] + share * (self._drawn[n + 1] - self._drawn[n]))
        return WIDTH - RIGHT


def timeline(wire: Wire, key: str, effects: Mapping[str, Sequence[Mapping[str, Any]]], records: Sequence[Any]) -> str:
    """Draw the picture of one key from all records about it."""
    history = [done for done in wire.done if done.operation.key == key]
    names = {version: f"v{n}" for n, version in enumerate(_versions(history), start=1)}
    points = [
        *_messages(wire, key, names),
        *_decisions(records, key, names),
        *(_effect(side, entry, names) for side in SIDES for entry in effects[side] if entry["key"] == key),
    ]
    end = max([point.at for point in points] + [done.at for done in history]) + 400
    axis = Axis([done.at for done in history] + [point.at for point in points] + [end])
    held = [(done.at, done.current) for done in history]
    bands = [("S3 holds", _band(held, held, end, names, "s3"))]
    for side in SIDES:
        mine = [entry for entry in effects[side] if entry["key"] == key]
        made = [(entry["ended"], entry["version"] if entry["kind"] == "created" else None) for entry in mine]
        bands.append((f"{side}'s row", _band([(held[0][0], None), *made], held, end, names, side)))
    return _draw(axis, bands, points)


def _versions(history: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(done.version_id for done in history if done.event_name == "ObjectCreated:Put"))


def _band(
    states: Sequence[tuple[int, str | None]],
    held: Sequence[tuple[int, str | None]],
    end: int,
    names: Mapping[str, str],
    style: str,
) -> list[Segment]:
    """Return the states in their order, divided where S3's state changed. Each piece agrees with S3 or does not."""
    cuts = sorted({at for at, _ in (*states, *held)} | {end})
    pieces: list[Segment] = []
    for start, stop in itertools.pairwise(cuts):
        mine = _at(states, start)
        theirs = _at(held, start)
        name = names.get(mine or "", "not there")
        agrees = mine == theirs
        kind = style if agrees and mine else "nothing" if agrees else "astray"
        tip = name if agrees else f"{name}, while S3 holds {names.get(theirs or '', 'nothing')}"
        if pieces and (pieces[-1].label, pieces[-1].style) == (name, kind) and style != "s3":
            pieces[-1] = Segment(pieces[-1].start, stop, name, kind, pieces[-1].tip)
        else:
            pieces.append(Segment(start, stop, name, kind, tip))
    return pieces


def _at(states: Sequence[tuple[int, str | None]], moment: int) -> str | None:
    now = None
    for at, state in states:
        if at <= moment:
            now = state
    return now


def _messages(wire: Wire, key: str, names: Mapping[str, str]) -> list[Point]:
    points = []
    for delivery in wire.deliveries:
        done = delivery.done
        if done.operation.key != key:
            continue
        name = names.get(done.version_id, "marker")
        what = {"ObjectCreated:Put": name, "ObjectRemoved:DeleteMarkerCreated": "deleted"}.get(
            done.event_name, f"{name} removed"
        )
        lane = {"sent": "delivered", "copy": "again", "late": "again, late", "lost": "lost"}[delivery.what]
        points.append(Point(delivery.at, lane, _short(what), f"message: {what}, {lane}", delivery.what))
    return points


def _decisions(records: Sequence[Any], key: str, names: Mapping[str, str]) -> list[Point]:
    points = []
    for record in records:
        if record.get("key") != key:
            continue
        at = int(datetime.strptime(record["timestamp"], "%Y-%m-%d %H:%M:%S,%f%z").timestamp() * 1000)
        if (verdict := record.get("verdict")) is not None:
            version = record.get("message_version_id", record.get("version_id"))
            name = names.get(version or "", "removal")
            tip = f"{verdict}: {record.get('why')} (message: {record['event_name']} {name})"
            style = "ledger" if verdict == "ACCEPTED" else "quiet"
            # The line of an ordinary claim is the line of its end.
            points.append(Point(at - record.get("duration_ms", 0), verdict.lower(), _short(name), tip, style))
        if record["message"] == "committed":
            name = names.get(record.get("version_id") or "", "removal")
            points.append(Point(at, "committed", _short(name), f"committed: {name}", "ledger"))
    return points


def _effect(side: str, entry: Mapping[str, Any], names: Mapping[str, str]) -> Point:
    name = names.get(entry["version"], "?") if entry["kind"] == "created" else "removed"
    return Point(entry["ended"], f"{side}'s effects", _short(name), f"{side}: effect of {name}", side)


def _short(name: str) -> str:
    return {"deleted": "✕", "removal": "✕", "removed": "✕", "marker removed": "↺"}.get(
        name, name.replace(" removed", "✕").removeprefix("v")
    )


LANES = (
    "delivered",
    "again",
    "again, late",
    "lost",
    "accepted",
    "duplicate",
    "stale",
    "busy",
    "committed",
    "ledger's effects",
    "naive's effects",
)


def _draw(axis: Axis, bands: Sequence[tuple[str, Sequence[Segment]]], points: Sequence[Point]) -> str:
    parts: list[str] = []
    y = 26.0
    for label, segments in bands:
        parts.append(_text(LEFT - 12, y + 20, label, "end"))
        for segment in segments:
            x, width = axis(segment.start), axis(segment.end) - axis(segment.start)
            parts.append(
                f'<g><title>{escape(segment.tip)}</title><rect class="{segment.style} band" x="{x:.1f}" y="{y:.1f}" '
                f'width="{max(width, 0.8):.1f}" height="{BAND}"/>'
                + (
                    _text(x + width / 2, y + 20, segment.label, "middle", "inside")
                    if width > 8 * len(segment.label) + 4
                    else ""
                )
                + "</g>"
            )
        y += BAND + 8
    y += 10
    for lane in LANES:
        mine = [point for point in points if point.lane == lane]
        if not mine:
            continue
        parts.append(_text(LEFT - 12, y + 14, lane, "end"))
        parts.append(f'<line class="lane" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y + 10:.1f}" y2="{y + 10:.1f}"/>')
        x = 0.0
        for point in sorted(mine, key=lambda point: point.at):
            # Draw points of the same moment side by side, in their order, so that each is visible.
            x = max(axis(point.at), x + 2 * DOT - 2 if x else 0.0)
            parts.append(
                f'<g><title>{escape(point.tip)}</title><circle class="{point.style}" cx="{x:.1f}" cy="{y + 10:.1f}" '
                f'r="{DOT}"/>{_text(x, y + 13.5, point.label, "middle", "dot")}</g>'
            )
        y += LANE
        if lane in ("lost", "busy"):
            y += 8
    for one, other in axis.cuts:
        x = (axis(one) + axis(other)) / 2
        parts.append(f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="{y:.1f}"/>')
        parts.append(_text(x, 12, f"{(other - one) / 1000:.0f} s later", "middle", "tick"))
    parts += _ticks(axis)
    return f'<svg viewBox="0 0 {WIDTH} {y + 6:.0f}" role="img" aria-label="timeline of one key">{"".join(parts)}</svg>'


def _ticks(axis: Axis) -> list[str]:
    """Draw a tick every five seconds up to the first cut."""
    last = axis.cuts[0][0] if axis.cuts else axis.start + 3_600_000
    ticks = []
    for seconds in range(0, 3_600, 5):
        moment = axis.start + seconds * 1000
        if moment > last or axis(moment) >= WIDTH - RIGHT:
            break
        ticks.append(_text(axis(moment), 12, f"{seconds} s", "middle", "tick"))
    return ticks


def _text(x: float, y: float, content: str, anchor: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'
