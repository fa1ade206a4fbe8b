"""The fault run of sets of files: the parts and the manifests of sets under faults, and wakes that are lost."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock

from tests.local.faults.collection import MANIFESTS, QUIET, Collection
from tests.local.faults.downstream import Delivery, Mood, Reaction
from tests.local.faults.moods import mixed
from tests.local.faults.outbreaks import described, not_over
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Outbreak, Trouble
from tests.local.faults.scenarios import FAST_FORWARD
from tests.local.faults.set_judge import SetsExpected
from tests.local.faults.set_stack import QUIET_SECONDS
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Sources

REFUSED = "no rows in it"


def sets(collection: Collection, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Kill the workers of parts and of sets, overwrite parts, send copies, and let DynamoDB and S3 fail."""
    started, form = time.monotonic(), collection.form
    for line in (collection.parts, collection.sets):
        line.hide_for(FAST_FORWARD)
    counts = dict.fromkeys(("before", "after", "part", "kept"), sizes.set_deaths) | {
        "table": sizes.sets,
        "rewritten": sizes.sets,
        "moved": sizes.sets,
    }
    folders = {kind: [f"{form.folder}/{kind}/{n}" for n in range(count)] for kind, count in counts.items()}
    outbreak = world.proxy.break_out(f"{collection.sets.bucket}/{form.folder}/table/", *_of_aws(sizes.sets))
    world.downstream.moods[form.folder] = _mood(collection)
    manifests = collection.put_all(mixed(*folders.values()))
    for folder in folders["rewritten"]:
        collection.put_part(manifests[collection.key_of(folder)][0], copies=1)
    kept = [manifests[collection.key_of(folder)][-1] for folder in folders["kept"]]
    # Their first versions must be committed, before the versions come that are refused.
    late = collection.sets.wait(
        lambda: (
            {collection.key_of(folder) for folder in (*folders["kept"], *folders["moved"])}
            <= _whole(collection, manifests)
        ),
        "the sets are processed whose parts will be replaced",
        timeout=sizes.timeout,
    )
    for key in kept:
        collection.put_part(key, copies=1)
    for folder in folders["moved"]:
        first, second, third = manifests[collection.key_of(folder)]
        if form is MANIFESTS:
            # Another order, without one part, and with a new version of another.
            manifests |= collection.close(folder, [second, first])
        else:
            collection.put_part(new := f"{folder}/3")
            manifests |= collection.close(folder, [first, second, third, new])
        collection.put_part(second)
    for key in manifests:
        collection.wake(key)

    expected = SetsExpected(
        refused=frozenset(kept),
        unheard=_commits(outbreak),
        folders=form is not MANIFESTS,
        # The refused version made the folder unquiet, and then the version of the set is the earlier one.
        returned=frozenset(map(collection.key_of, folders["kept"])) if form is QUIET else frozenset(),
        quiet_seconds=QUIET_SECONDS if form is QUIET else 0,
    )
    report = collection.settled(f"{form.folder}/", manifests, expected, timeout=sizes.timeout)
    deaths = [one for one in world.downstream.killed if one.key.startswith(f"{form.folder}/")]
    problems = [*late, *not_over(outbreak)]
    if len(deaths) != 3 * sizes.set_deaths:
        problems.append(f"{len(deaths)} workers were killed, {3 * sizes.set_deaths} should have been")
    told = f"{len(deaths)} workers killed, {described(outbreak)}"
    yield outcome(f"{form.title} under all faults", started, report, told, problems)
    if form is MANIFESTS:
        yield _wakes_lost(collection, sizes)


def _whole(collection: Collection, manifests: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the sets that had an effect with all of their parts."""
    effects = collection.parts.downstream.effects_of(f"{collection.form.folder}/")
    return {
        one.key
        for one in effects
        if collection.is_set(one.key) and len(json.loads(one.content)) == len(manifests[one.key])
    }


def _wakes_lost(collection: Collection, sizes: Sizes) -> Outcome:
    """Delete the messages of the sets' queue. The audit finds the sets."""
    started = time.monotonic()
    collection.take_messages(enabled=False)
    manifests = collection.put_all([f"sets/unwoken/{n}" for n in range(sizes.sets)])
    keys = {part for parts in manifests.values() for part in parts}

    def committed() -> bool:
        rows = collection.parts.rows("sets/unwoken/")
        return collection.parts.quiet() and all(key in rows and rows[key].status == "PROCESSED" for key in keys)

    late = collection.parts.wait(committed, "the parts are committed", timeout=sizes.timeout)
    lost = collection.lose_messages()
    collection.take_messages(enabled=True)
    calls = collection.parts.downstream.calls_of("sets/unwoken/")
    early = [call for call in calls if collection.is_set(call.delivery.key)]
    woken = collection.audit()
    report = collection.settled("sets/unwoken/", manifests, SetsExpected(), timeout=sizes.timeout)
    problems = [*late]
    if lost < len(manifests) or early:
        problems.append(f"{lost} messages were deleted, and {len(early)} sets were processed")
    if woken != sorted(manifests):
        problems.append(f"the audit woke {woken}")
    return outcome("wakes of sets are lost", started, report, f"{lost} messages deleted", problems)


def _mood(collection: Collection) -> Mood:
    """The key says what goes wrong."""
    first_of: dict[str, str] = {}
    lock = Lock()

    def mood(delivery: Delivery) -> Reaction:
        with lock:
            begun = delivery.key in first_of
            first = first_of.setdefault(delivery.key, delivery.version)
        kind = delivery.key.split("/")[1]
        if collection.is_set(delivery.key):
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
