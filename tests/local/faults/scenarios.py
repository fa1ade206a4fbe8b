"""The fault runs: faults for the pipelines, and requirements for the results.

Each scenario uses a separate key prefix and runs at the same time as the others.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import NamedTuple

from tests.local.faults import HOUR, WIRED_SECONDS
from tests.local.faults.downstream import TAKEN, Delivery, Mood, Reaction
from tests.local.faults.judge import Expected, Report
from tests.local.faults.proxy import Fault, Outbreak, Trouble
from tests.local.faults.world import Line, Sources

FAST_FORWARD = 17
"""Seconds for which a queue hides a message where workers die. This is just more than the lease of a processing timeout
of two seconds (a function timeout of 14, a skew of 1). The construct's default is half a minute longer.
"""
TABLE = ("BatchExecuteStatement", "BatchGetItem", "DeleteItem", "GetItem", "PutItem", "UpdateItem")
REQUESTS_PER_OVERWRITE = 8
"""A message for a busy key asks at once and again after the lease: each time an insert, then a HEAD. The other requests
are for messages that are processed, and for retries.
"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of objects and faults."""

    deaths: int
    """Workers killed before their effect. The same number is killed after it."""
    always: int
    """Objects whose worker dies at each attempt."""
    neighbours: int
    twice: int
    table: int
    """Objects while DynamoDB has faults, and number of faults."""
    bucket: int
    """Objects while S3 has faults, and number of faults."""
    cut: int
    """Objects whose GETs are cut. The number of GETs is twenty times as high."""
    overwrites: int
    objects: int
    poison: int
    outage: int
    """Objects; and for how many seconds the downstream is out."""
    outage_seconds: float
    timeout: float
    """Seconds until a scenario is given up."""


SHORT = Sizes(
    deaths=2, always=0, neighbours=40, twice=10, table=60, bucket=30, cut=100, overwrites=60, objects=300, poison=4,
    outage=80, outage_seconds=4, timeout=400,
)  # fmt: skip
FULL = Sizes(
    deaths=10, always=2, neighbours=400, twice=50, table=600, bucket=300, cut=1000, overwrites=1000, objects=5000,
    poison=50, outage=1000, outage_seconds=HOUR, timeout=1200,
)  # fmt: skip
TEN_MINUTES = Sizes(
    deaths=5, always=1, neighbours=150, twice=25, table=250, bucket=120, cut=400, overwrites=400, objects=2000,
    poison=20, outage=400, outage_seconds=HOUR / 2, timeout=500,
)  # fmt: skip


class Outcome(NamedTuple):
    """Result of a scenario."""

    name: str
    report: Report
    seconds: float
    """Duration of its pipeline's scenarios so far."""
    told: str
    """Description of the faults."""


def killed(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Kill workers in the middle of a batch, and deliver one message to several workers at once."""
    started = time.monotonic()
    # SQS delivers each message to every worker that asks.
    line.hide_for(0)
    world.downstream.moods["twice"] = _dies_on_first("twice/dies/", seconds=0.3)
    dying = [f"twice/dies/{n}" for n in range(sizes.twice)]
    living = [f"twice/lives/{n}" for n in range(sizes.twice)]
    for key in _mixed(dying, living):
        line.announce(key, line.put(key), copies=2)

    def begun() -> bool:
        return {one.key for one in world.downstream.tried_of("twice/")} == {*dying, *living}

    # An empty queue will bring no more.
    late = line.wait(lambda: begun() or line.quiet(), "all are begun", timeout=sizes.timeout)
    unbegun = late if begun() else ["some were never begun"]
    line.hide_for(FAST_FORWARD)

    world.downstream.moods["killed"] = _dies_on_first("killed/before/", "killed/after/", "killed/always/")
    before, after, innocent = (
        [f"killed/{kind}/{n}" for n in range(count)]
        for kind, count in (("before", sizes.deaths), ("after", sizes.deaths), ("innocent", sizes.neighbours))
    )
    always = {f"killed/always/{n}": "the worker died" for n in range(sizes.always)}
    line.put_all(_mixed(before, after, list(always), innocent))

    report = line.settled("twice/", Expected(), timeout=sizes.timeout)
    alone = [] if report.busy else ["no message met another worker"]
    told = f"{len(dying)} holders killed, {2 * len(dying + living)} copies"
    yield _outcome("the same message to several at once", started, report, told, [*unbegun, *alone])
    expected = Expected(poison=always, repeats=len(after))
    report = line.settled("killed/", expected, timeout=sizes.timeout)
    deaths = sum(one.key.startswith("killed/") for one in world.downstream.killed)
    repeated = [] if report.repeated == len(after) else [f"{len(after)} effects had to be repeated"]
    yield _outcome("workers killed in mid-batch", started, report, f"{deaths} workers killed", repeated)


def wired(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """DynamoDB and S3 are in trouble, and one key is overwritten all the time, while a dead worker holds it."""
    started = time.monotonic()
    line.hide_for(FAST_FORWARD)
    # Workers that know their pace claim in groups.
    warm = [f"warm/{n}" for n in range(30)]
    line.put_all(warm)
    cold = line.wait(
        lambda: len(world.downstream.effects_of("warm/")) >= len(warm), "all are warm", timeout=sizes.timeout
    )

    table = world.proxy.break_out(f"{line.bucket}/table/", *_of_dynamodb(sizes.table))
    bucket = world.proxy.break_out(f"{line.bucket}/bucket/", *_of_s3(sizes.bucket))
    cut = world.proxy.break_out(f"{line.bucket}/cut/", *_one_get_in(20, sizes.cut))
    world.downstream.moods["hot"] = _dies_on_first("hot/")
    line.put("hot/key")
    unheld = line.wait(lambda: bool(world.downstream.tried_of("hot/")), "it is held", timeout=sizes.timeout)
    line.put_all(["hot/key"] * sizes.overwrites)
    line.put_all(f"table/{n}" for n in range(sizes.table))
    for _ in range(2):
        line.put_all(f"bucket/{n}" for n in range(sizes.bucket))
    line.put_all(f"cut/{n}" for n in range(sizes.cut))

    report = line.settled("bucket/", Expected(), timeout=sizes.timeout)
    yield _outcome("S3 slow and failing", started, report, _told(bucket), [*cold, *_not_over(bucket)])
    report = line.settled("cut/", Expected(), timeout=sizes.timeout)
    yield _outcome("one GET in twenty is cut", started, report, _told(cut), _not_over(cut))
    # Each commit that was not heard may have cost an effect.
    expected = Expected(repeats=sum(fault.struck for fault in table.faults))
    report = line.settled("table/", expected, timeout=sizes.timeout)
    yield _outcome("DynamoDB throttling and failing", started, report, _told(table), _not_over(table))
    report = line.settled("hot/", Expected(), timeout=sizes.timeout)
    requests = world.proxy.requests(f"{line.bucket}/hot/key").total()
    allowed = REQUESTS_PER_OVERWRITE * report.sent
    many = [f"{requests} requests for {report.sent} versions"] if requests > allowed else []
    told = f"{requests / report.sent:.1f} requests a version"
    yield _outcome("one key overwritten while it is held", started, report, told, [*unheld, *many])


def plain(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Poison among many; then the dead letters are moved back, and a part of them has become good."""
    started = time.monotonic()
    refused = {f"bulk/unprocessable/{n}": "no invoice in it" for n in range(sizes.poison // 2)}
    raising = {f"bulk/raises/{n}": "HTTPError" for n in range(sizes.poison - len(refused))}
    world.downstream.moods["bulk"] = _poisoned(refused, raising)
    innocent = [f"bulk/innocent/{n}" for n in range(sizes.objects - sizes.poison)]
    line.put_all(_mixed(list(refused), list(raising), innocent))
    poison = refused | raising
    report = line.settled("bulk/", Expected(poison=poison), timeout=sizes.timeout)
    yield _outcome("poison among many", started, report, f"{len(poison)} of {sizes.objects} are poison")

    started = time.monotonic()
    world.downstream.moods["bulk"] = _poisoned(refused, {})
    moved = line.redrive()
    report = line.settled("bulk/", Expected(poison=refused, redrive_count=1), timeout=sizes.timeout)
    few = [] if moved == len(poison) else [f"{moved} messages were moved, {len(poison)} should have been there"]
    yield _outcome("moved back from the dead letters", started, report, f"{len(raising)} of {moved} were healed", few)


def outage(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """The downstream is out, for everything, and comes back."""
    started, out = time.monotonic(), Event()
    out.set()
    world.downstream.moods["outage"] = lambda _: Reaction(503, taken=False) if out.is_set() else TAKEN
    line.put_all(f"outage/{n}" for n in range(sizes.outage))
    unnoticed = line.wait(
        lambda: bool(world.downstream.tried_of("outage/")), "the outage is noticed", timeout=sizes.timeout
    )
    Event().wait(sizes.outage_seconds)
    tried = Counter(one.key for one in world.downstream.tried_of("outage/"))
    out.clear()
    report = line.settled("outage/", Expected(), timeout=sizes.timeout)
    told = (
        f"out for {sizes.outage_seconds:.0f} s, {tried.total()} attempts, {max(tried.values(), default=0)} at one key"
    )
    yield _outcome("the downstream is out", started, report, told, unnoticed)


LINES: dict[str, Callable[[Line, Sources, Sizes], Iterator[Outcome]]] = {
    "Killed": killed,
    "Wired": wired,
    "Plain": plain,
    "Outage": outage,
}


def run(world: Sources, outputs: Mapping[str, str], sizes: Sizes, lines: Sequence[str] = ()) -> list[Outcome]:
    """Run the scenarios of these pipelines at the same time. All pipelines if `lines` is empty."""

    def one(name: str) -> list[Outcome]:
        return list(LINES[name](Line.of(world, outputs, name), world, sizes))

    with ThreadPoolExecutor(len(LINES)) as pool:
        return [outcome for outcomes in pool.map(one, lines or LINES) for outcome in outcomes]


def _dies_on_first(*prefixes: str, seconds: float = 0) -> Mood:
    """Kill the first worker of each key. The key says if it dies after its effect, or at each attempt."""
    known: set[str] = set()

    def mood(delivery: Delivery) -> Reaction:
        first = delivery.key not in known
        known.add(delivery.key)
        if delivery.key.startswith(prefixes) and (first or "/always/" in delivery.key):
            return Reaction(kill=True, taken="/after/" in delivery.key, seconds=seconds)
        return Reaction(seconds=seconds)

    return mood


def _poisoned(refused: Mapping[str, str], raising: Mapping[str, str]) -> Mood:
    def mood(delivery: Delivery) -> Reaction:
        if why := refused.get(delivery.key):
            return Reaction(422, why, taken=False)
        return Reaction(500, taken=False) if delivery.key in raising else TAKEN

    return mood


def _of_dynamodb(times: int) -> tuple[Fault, ...]:
    """Return faults for about `times` requests."""
    claims = ("BatchExecuteStatement", "PutItem")
    return (
        Fault(Trouble.EACH_THROTTLED, 1, ("BatchExecuteStatement",)),
        Fault(Trouble.ANSWER_LOST, 2, claims),
        Fault(Trouble.THROTTLED, times // 2, TABLE),
        Fault(Trouble.INTERNAL_ERROR, times // 6, TABLE),
        Fault(Trouble.CUT, times // 6, TABLE),
        Fault(Trouble.ANSWER_LOST, times // 6, ("UpdateItem",)),
        Fault(Trouble.SLOW, 1, ("UpdateItem",), seconds=5.5),  # the consumer's own limit is five
    )


def _of_s3(times: int) -> tuple[Fault, ...]:
    """Return faults of S3. GET opens a version, HEAD reads the current one."""
    # The processor reads half a body. More of them in a row would open the consumer's circuit breaker. Another run
    # tests its pauses.
    halves = [
        (Fault(Trouble.HALF_AN_ANSWER, 2, ("GET",)), Fault(Trouble.NONE, 6, ("GET",))) for _ in range(times // 12)
    ]
    return (
        Fault(Trouble.THROTTLED, times // 4, ("HEAD",)),
        Fault(Trouble.THROTTLED, times // 4, ("GET",)),
        Fault(Trouble.INTERNAL_ERROR, times // 6, ("GET", "HEAD")),
        Fault(Trouble.CUT, times // 6, ("GET", "HEAD")),
        *(fault for few in halves for fault in few),
        Fault(Trouble.SLOW, 2, ("GET", "HEAD"), seconds=1),
        Fault(Trouble.SLOW, 2, ("GET",), seconds=WIRED_SECONDS + 1),
    )


def _one_get_in(every: int, gets: int) -> tuple[Fault, ...]:
    """End one of `every` answers in the middle of the body. This pipeline's HTTP client does not notice."""
    return tuple(
        fault
        for _ in range(gets // every)
        for fault in (Fault(Trouble.NONE, every - 1, ("GET",)), Fault(Trouble.HALF_AN_ANSWER, 1, ("GET",)))
    )


def _told(outbreak: Outbreak) -> str:
    struck = Counter[str]()
    for fault in outbreak.faults:
        if fault.trouble is not Trouble.NONE:
            struck[fault.trouble] += fault.struck
    return ", ".join(f"{times} {trouble}" for trouble, times in struck.items())


def _not_over(outbreak: Outbreak) -> list[str]:
    """Report faults that did not happen: such a run has shown nothing."""
    return [] if outbreak.over else [f"the trouble did not come about: {outbreak.faults}"]


def _mixed(*lists: list[str]) -> list[str]:
    """All of them, each list spread evenly over the whole."""
    places = [((n + 0.5) / len(some), key) for some in lists for n, key in enumerate(some)]
    return [key for _, key in sorted(places)]


def _outcome(name: str, started: float, report: Report, told: str, problems: Sequence[str] = ()) -> Outcome:
    if problems:
        report = replace(report, problems=(*report.problems, *problems))
    return Outcome(name, report, time.monotonic() - started, told)
