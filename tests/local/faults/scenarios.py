"""The fault runs of pipelines: faults, and requirements for the results.

Each scenario uses a separate key prefix and runs at the same time as the others.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from threading import Event

from tests.local.faults import BURST, GROUPS, PER_CALL, PER_SECOND
from tests.local.faults.downstream import TAKEN, Call, Delivery, Reaction
from tests.local.faults.judge import Expected, wrong_rejects
from tests.local.faults.moods import dies_on_first, mixed, poisoned
from tests.local.faults.outbreaks import described, not_over, of_dynamodb, of_s3, one_get_in
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Trouble
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Line, Sources

FAST_FORWARD = 17
"""Seconds for which a queue hides a message where workers die. This is just more than the lease of a processing timeout
of two seconds (a function timeout of 14, a skew of 1). The construct's default is half a minute longer.
"""
PAUSE = 5
"""Seconds between a start at the rate and its call, on a machine that is busy with other runs."""
REQUESTS_PER_OVERWRITE = 8
"""A message for a busy key asks at once and again after the lease: each time an insert, then a HEAD. The other requests
are for messages that are processed, and for retries.
"""


def killed(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Kill workers in the middle of a batch, and deliver one message to several workers at once."""
    started = time.monotonic()
    # SQS delivers each message to every worker that asks.
    line.hide_for(0)
    world.downstream.moods["twice"] = dies_on_first("twice/dies/", seconds=0.3)
    dying = [f"twice/dies/{n}" for n in range(sizes.twice)]
    living = [f"twice/lives/{n}" for n in range(sizes.twice)]
    for key in mixed(dying, living):
        line.announce(key, line.put(key), copies=2)

    def begun() -> bool:
        return {one.key for one in world.downstream.tried_of("twice/")} == {*dying, *living}

    # An empty queue will bring no more.
    late = line.wait(lambda: begun() or line.quiet(), "all are begun", timeout=sizes.timeout)
    unbegun = late if begun() else ["some were never begun"]
    line.hide_for(FAST_FORWARD)

    world.downstream.moods["killed"] = dies_on_first("killed/before/", "killed/after/", "killed/always/")
    before, after, innocent = (
        [f"killed/{kind}/{n}" for n in range(count)]
        for kind, count in (("before", sizes.deaths), ("after", sizes.deaths), ("innocent", sizes.neighbours))
    )
    always = {f"killed/always/{n}": "the worker died" for n in range(sizes.always)}
    line.put_all(mixed(before, after, list(always), innocent))

    report = line.settled("twice/", Expected(), timeout=sizes.timeout)
    alone = [] if report.busy else ["no message met another worker"]
    told = f"{len(dying)} holders killed, {2 * len(dying + living)} copies"
    yield outcome("the same message to several at once", started, report, told, [*unbegun, *alone])
    expected = Expected(poison=always, repeats=len(after))
    report = line.settled("killed/", expected, timeout=sizes.timeout)
    deaths = sum(one.key.startswith("killed/") for one in world.downstream.killed)
    repeated = [] if report.repeated == len(after) else [f"{len(after)} effects had to be repeated"]
    yield outcome("workers killed in mid-batch", started, report, f"{deaths} workers killed", repeated)


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

    table = world.proxy.break_out(f"{line.bucket}/table/", *of_dynamodb(sizes.table))
    bucket = world.proxy.break_out(f"{line.bucket}/bucket/", *of_s3(sizes.bucket))
    cut = world.proxy.break_out(f"{line.bucket}/cut/", *one_get_in(20, sizes.cut))
    world.downstream.moods["hot"] = dies_on_first("hot/")
    line.put("hot/key")
    unheld = line.wait(lambda: bool(world.downstream.tried_of("hot/")), "it is held", timeout=sizes.timeout)
    line.put_all(["hot/key"] * sizes.overwrites)
    line.put_all(f"table/{n}" for n in range(sizes.table))
    for _ in range(2):
        line.put_all(f"bucket/{n}" for n in range(sizes.bucket))
    line.put_all(f"cut/{n}" for n in range(sizes.cut))

    report = line.settled("bucket/", Expected(), timeout=sizes.timeout)
    yield outcome("S3 slow and failing", started, report, described(bucket), [*cold, *not_over(bucket)])
    report = line.settled("cut/", Expected(), timeout=sizes.timeout)
    yield outcome("one GET in twenty is cut", started, report, described(cut), not_over(cut))
    # Each commit that was not heard may have cost an effect.
    expected = Expected(repeats=sum(fault.struck for fault in table.faults))
    report = line.settled("table/", expected, timeout=sizes.timeout)
    yield outcome("DynamoDB throttling and failing", started, report, described(table), not_over(table))
    report = line.settled("hot/", Expected(), timeout=sizes.timeout)
    requests = world.proxy.requests(f"{line.bucket}/hot/key").total()
    allowed = REQUESTS_PER_OVERWRITE * report.sent
    many = [f"{requests} requests for {report.sent} versions"] if requests > allowed else []
    told = f"{requests / report.sent:.1f} requests a version"
    yield outcome("one key overwritten while it is held", started, report, told, [*unheld, *many])


def plain(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Poison among many; then the dead letters are moved back, and a part of them has become good."""
    started = time.monotonic()
    refused = {f"bulk/unprocessable/{n}": "no invoice in it" for n in range(sizes.poison // 2)}
    raising = {f"bulk/raises/{n}": "HTTPError" for n in range(sizes.poison - len(refused))}
    world.downstream.moods["bulk"] = poisoned(refused, raising)
    innocent = [f"bulk/innocent/{n}" for n in range(sizes.objects - sizes.poison)]
    line.put_all(mixed(list(refused), list(raising), innocent))
    poison = refused | raising
    report = line.settled("bulk/", Expected(poison=poison), timeout=sizes.timeout)
    yield outcome("poison among many", started, report, f"{len(poison)} of {sizes.objects} are poison")

    started = time.monotonic()
    world.downstream.moods["bulk"] = poisoned(refused, {})
    moved = line.redrive()
    report = line.settled("bulk/", Expected(poison=refused, redrive_count=1), timeout=sizes.timeout)
    few = [] if moved == len(poison) else [f"{moved} messages were moved, {len(poison)} should have been there"]
    yield outcome("moved back from the dead letters", started, report, f"{len(raising)} of {moved} were healed", few)


def grouped(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Keys of a few groups, at a rate of starts. Workers that have a group are killed."""
    started = time.monotonic()
    line.hide_for(FAST_FORWARD)
    world.downstream.moods["grouped"] = _dies_in_group
    before, after, living = (
        [f"grouped/a{n % GROUPS}/{kind}/{n}" for n in range(count)]
        for kind, count in (("before", sizes.deaths), ("after", sizes.deaths), ("lives", sizes.neighbours))
    )
    _put_with_copies(line, mixed(before, after, living))
    expected = Expected(repeats=len(after))
    report = line.settled("grouped/", expected, timeout=sizes.timeout)
    calls = sorted(world.downstream.calls_of("grouped/"), key=lambda one: one.started)
    problems = [*_not_exclusive(calls), *_too_fast([one.started for one in calls])]
    told = f"{len(before + after)} holders killed, {GROUPS} groups, {len(calls)} starts at {PER_SECOND} in a second"
    yield outcome("groups and a rate", started, report, told, problems)


def _put_with_copies(line: Line, keys: Sequence[str]) -> None:
    """Upload objects. The events of each tenth one come three times."""
    for number, key in enumerate(keys):
        version = line.put(key)
        if number % 10 == 0:
            line.announce(key, version, copies=2)


def _dies_in_group(delivery: Delivery) -> Reaction:
    kind = delivery.key.split("/")[2]
    if kind != "lives" and delivery.attempt == 1:
        return Reaction(kill=True, taken=kind == "after", seconds=0.2)
    return Reaction(seconds=0.2)


def _not_exclusive(calls: Sequence[Call]) -> list[str]:
    """Calls of one group that had not ended when the next one began."""
    of_group: dict[str, list[Call]] = {}
    for call in calls:
        of_group.setdefault(call.delivery.key.split("/")[1], []).append(call)
    pairs = [pair for some in of_group.values() for pair in pairwise(some)]
    return [
        f"{two.delivery.key} began before {one.delivery.key} had ended" for one, two in pairs if two.started < one.ended
    ]


def _too_fast(starts: Sequence[float]) -> list[str]:
    """Starts beyond the bound of docs/protocol.md, for workers that pause for `PAUSE` seconds at most."""
    found = []
    for first, begin in enumerate(starts):
        for number, end in enumerate(starts[first:], 1):
            if number > PER_SECOND * (end - begin + PAUSE) + BURST:
                found.append(f"{number} starts in {end - begin:.1f} s")
                break
    return found


def called(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Several changes in each call of the processor. Workers are killed in a call, and some changes are poison."""
    started = time.monotonic()
    line.hide_for(FAST_FORWARD)
    dying = dies_on_first("called/before/", "called/after/")
    refused = {f"called/refused/{n}": "no invoice in it" for n in range(sizes.deaths)}
    world.downstream.moods["called"] = lambda delivery: (
        Reaction(422, refused[delivery.key], taken=False) if delivery.key in refused else dying(delivery)
    )
    before, after, innocent = (
        [f"called/{kind}/{n}" for n in range(count)]
        for kind, count in (("before", sizes.deaths), ("after", sizes.deaths), ("innocent", sizes.neighbours))
    )
    _put_with_copies(line, mixed(before, after, list(refused), innocent))
    # A worker that dies repeats the effects that its call had before.
    expected = Expected(poison=refused, repeats=len(after) + (PER_CALL - 1) * len(before + after))
    report = line.settled("called/", expected, timeout=sizes.timeout)
    tried = world.downstream.tried_of("called/innocent/")
    spent = [f"{one.key} had attempt {one.attempt}" for one in tried if one.attempt != 1]
    told = f"{len(before + after)} workers killed in a call, {len(refused)} of {report.sent} are poison"
    yield outcome("several changes in a call", started, report, told, spent)
    yield from rejected(line, world, sizes)


def rejected(line: Line, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Files with a bad row that are repaired, and good ones that are spoiled. Workers die between output and commit."""
    started = time.monotonic()
    repaired, spoiled = ([f"rows/{kind}/{n}" for n in range(2 * sizes.deaths)] for kind in ("repaired", "spoiled"))
    of_rows = ("PutItem", "UpdateItem", "BatchExecuteStatement")
    deaths = world.proxy.break_out(
        f"{line.bucket}/rows/repaired/", Fault(Trouble.KILLED, sizes.deaths, of_rows, says="PROCESSED")
    )
    for key in mixed(repaired, spoiled):
        line.put(key, _file(bad=key in repaired))
    early = line.wait(lambda: deaths.over, "workers die before their commits", timeout=sizes.timeout)
    for key in mixed(repaired, spoiled):
        line.put(key, _file(bad=key in spoiled))
    expected = Expected(repeats=PER_CALL * sizes.deaths)
    report = line.settled("rows/", expected, timeout=sizes.timeout)
    problems = wrong_rejects(line.versions("rows/"), line.rejected_rows(), spoiled)
    told = f"{sizes.deaths} workers killed before a commit, {len(spoiled)} of {len(repaired + spoiled)} files are bad"
    yield outcome("rejected rows", started, report, told, [*early, *problems])


def _file(*, bad: bool) -> str:
    return f"number\n{time.monotonic_ns()}\n" + ("x\n" if bad else "")


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
    yield outcome("the downstream is out", started, report, told, unnoticed)
