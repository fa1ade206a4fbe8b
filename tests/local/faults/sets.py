"""The fault run of sets of files: the parts and the manifests of sets under faults, and wakes that are lost."""

import time
from collections.abc import Iterator
from threading import Lock

from tests.local.faults.collection import MANIFEST, Collection
from tests.local.faults.downstream import Delivery, Mood, Reaction
from tests.local.faults.moods import mixed
from tests.local.faults.outbreaks import described, not_over
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Outbreak, Trouble
from tests.local.faults.scenarios import FAST_FORWARD
from tests.local.faults.set_judge import SetsExpected
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Sources

REFUSED = "no rows in it"


def sets(collection: Collection, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Kill the workers of parts and of sets, overwrite parts, send copies, and let DynamoDB and S3 fail."""
    started = time.monotonic()
    for line in (collection.parts, collection.sets):
        line.hide_for(FAST_FORWARD)
    counts = dict.fromkeys(("before", "after", "part", "kept"), sizes.set_deaths) | {
        "table": sizes.sets,
        "rewritten": sizes.sets,
        "moved": sizes.sets,
    }
    folders = {kind: [f"sets/{kind}/{n}" for n in range(count)] for kind, count in counts.items()}
    outbreak = world.proxy.break_out(f"{collection.sets.bucket}/sets/table/", *_of_aws(sizes.sets))
    world.downstream.moods["sets"] = _mood()
    manifests = collection.put_all(mixed(*folders.values()))
    for folder in folders["rewritten"]:
        collection.put_part(manifests[f"{folder}/{MANIFEST}"][0], copies=1)
    kept = [manifests[f"{folder}/{MANIFEST}"][-1] for folder in folders["kept"]]
    # Their first versions must be committed, before the versions come that are refused.
    late = collection.sets.wait(
        lambda: (
            {f"{folder}/{MANIFEST}" for folder in (*folders["kept"], *folders["moved"])}
            <= {one.key for one in world.downstream.effects_of("sets/")}
        ),
        "the sets are processed whose parts will be replaced",
        timeout=sizes.timeout,
    )
    for key in kept:
        collection.put_part(key, copies=1)
    for folder in folders["moved"]:
        # Another order, without one part, and with a new version of another.
        first, second, _ = manifests[f"{folder}/{MANIFEST}"]
        manifests |= collection.put_manifest(folder, [second, first])
        collection.put_part(second)
    for key in manifests:
        collection.wake(key)

    expected = SetsExpected(refused=frozenset(kept), unheard=_commits(outbreak))
    report = collection.settled("sets/", manifests, expected, timeout=sizes.timeout)
    deaths = [one for one in world.downstream.killed if one.key.startswith("sets/")]
    problems = [*late, *not_over(outbreak)]
    if len(deaths) != 3 * sizes.set_deaths:
        problems.append(f"{len(deaths)} workers were killed, {3 * sizes.set_deaths} should have been")
    told = f"{len(deaths)} workers killed, {described(outbreak)}"
    yield outcome("sets under all faults", started, report, told, problems)
    yield _wakes_lost(collection, sizes)


def _wakes_lost(collection: Collection, sizes: Sizes) -> Outcome:
    """Delete the messages of the sets' queue. The audit finds the sets."""
    started = time.monotonic()
    collection.take_messages(enabled=False)
    manifests = collection.put_all([f"unwoken/{n}" for n in range(sizes.sets)])
    keys = {part for parts in manifests.values() for part in parts}

    def committed() -> bool:
        rows = collection.parts.rows("unwoken/")
        return collection.parts.quiet() and all(key in rows and rows[key].status == "PROCESSED" for key in keys)

    late = collection.parts.wait(committed, "the parts are committed", timeout=sizes.timeout)
    lost = collection.lose_messages()
    collection.take_messages(enabled=True)
    calls = collection.parts.downstream.calls_of("unwoken/")
    early = [call for call in calls if call.delivery.key.endswith(MANIFEST)]
    woken = collection.audit()
    report = collection.settled("unwoken/", manifests, SetsExpected(), timeout=sizes.timeout)
    problems = [*late]
    if lost < len(manifests) or early:
        problems.append(f"{lost} messages were deleted, and {len(early)} sets were processed")
    if woken != sorted(manifests):
        problems.append(f"the audit woke {woken}")
    return outcome("wakes of sets are lost", started, report, f"{lost} messages deleted", problems)


def _mood() -> Mood:
    """The key says what goes wrong."""
    first_of: dict[str, str] = {}
    lock = Lock()

    def mood(delivery: Delivery) -> Reaction:
        with lock:
            begun = delivery.key in first_of
            first = first_of.setdefault(delivery.key, delivery.version)
        kind = delivery.key.split("/")[1]
        if delivery.key.endswith(MANIFEST):
            if kind in ("before", "after") and not begun:
                return Reaction(kill=True, taken=kind == "after", seconds=0.2)
            return Reaction(seconds=0.2)
        if kind == "part" and not begun and delivery.key.endswith("/2"):
            # Its effect is there, and it is not committed.
            return Reaction(kill=True)
        if kind == "kept" and delivery.version != first:
            return Reaction(422, REFUSED, taken=False)
        return Reaction()

    return mood


def _of_aws(times: int) -> tuple[Fault, ...]:
    """Return faults of DynamoDB and S3."""
    return (
        Fault(Trouble.THROTTLED, times, ("GET", "HEAD")),
        Fault(Trouble.THROTTLED, times, ("BatchGetItem",)),
        Fault(Trouble.ANSWER_LOST, times, ("UpdateItem",)),
        Fault(Trouble.CUT, times, ("UpdateItem", "BatchExecuteStatement", "PutItem")),
        Fault(Trouble.INTERNAL_ERROR, times, ("BatchGetItem", "Query", "BatchWriteItem", "GET")),
    )


def _commits(outbreak: Outbreak) -> int:
    """Return the greatest number of commits that have a fault."""
    return sum(fault.times for fault in outbreak.faults if "UpdateItem" in fault.operations)
