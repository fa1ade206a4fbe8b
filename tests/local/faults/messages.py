"""The fault runs of keyed messages, which are the same for each source: queues, a bus of EventBridge and streams."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import batched
from threading import Lock

from tests.local.faults.downstream import Delivery, Mood, Reaction
from tests.local.faults.intakes import Intake
from tests.local.faults.message_judge import MessagesExpected, Name
from tests.local.faults.moods import mixed
from tests.local.faults.outbreaks import described, not_over
from tests.local.faults.outcomes import Outcome, outcome
from tests.local.faults.proxy import Fault, Outbreak, Trouble
from tests.local.faults.scenarios import FAST_FORWARD
from tests.local.faults.sizes import Sizes
from tests.local.faults.world import Sources

IDENTITIES = 3
"""Messages of each key. Every one is sent two or three times."""
LEAST_TABLE = 8
"""Keys of a stream while DynamoDB has faults: enough requests for one turn of all faults."""
TRIES = 4
"""Requests of the SDK for one operation. If all fail, the operation fails."""
REFUSED, RAISED = "no amount in it", "HTTPError"


def messages(intake: Intake, world: Sources, sizes: Sizes) -> Iterator[Outcome]:
    """Kill workers, refuse and fail messages, and let DynamoDB fail, all among copies and busy keys."""
    started = time.monotonic()
    line, table = intake.line, f"{intake.name}/table/"
    line.hide_for(FAST_FORWARD)
    counts = {
        "before": sizes.message_deaths,
        "after": sizes.message_deaths,
        "fails": sizes.message_keys // 2,
        "poison": sizes.message_poison,
        "table": max(sizes.message_table, LEAST_TABLE) if intake.held else sizes.message_table,
        "plain": sizes.message_keys,
    }
    keys = {kind: [f"{intake.name}/{kind}/{n}" for n in range(count)] for kind, count in counts.items()}
    poison = {Name(key, "0"): RAISED for key in keys["poison"]} | {Name(key, "1"): REFUSED for key in keys["poison"]}
    faults = (_of_dynamodb_in_turn if intake.held else _of_dynamodb)(sizes.message_table)
    outbreak = world.proxy.break_out(f"{line.bucket}/{table}", *faults)
    world.downstream.moods[intake.name] = _mood(poison)
    sent = _with_copies(mixed(*keys.values()))
    intake.send(sent)

    expected = MessagesExpected(
        poison=poison, unheard=_commits(outbreak), ordered=intake.ordered, held=intake.held, stamped=intake.stamped
    )
    report = intake.settled(sent, expected, timeout=sizes.timeout)
    deaths = [one for one in world.downstream.killed if one.key.startswith(f"{intake.name}/")]
    after = sum("/after/" in one.key for one in deaths)
    problems = not_over(outbreak)
    if len(deaths) != 2 * sizes.message_deaths:
        problems.append(f"{len(deaths)} workers were killed, {2 * sizes.message_deaths} should have been")
    if intake.meets and not report.busy:
        problems.append("no message met another of its key")
    told = f"{len(deaths)} workers killed, {after} of them after the effect, {described(outbreak)}"
    yield outcome(f"{intake.title} under all faults", started, report, told, problems)


def _with_copies(keys: Sequence[str]) -> list[Name]:
    """Three messages of each key, each one with one copy or two.

    The messages of two keys alternate, so that a batch has several messages of a key. Then come copies of the messages
    of the two keys before.
    """
    pairs = [[Name(key, str(n)) for n in range(IDENTITIES) for key in two] for two in batched(keys, 2)]
    sent = []
    for number, pair in enumerate(pairs):
        before = pairs[number - 1]
        sent += [*pair, *before, *before[::2]]
    return sent


def _mood(poison: Mapping[Name, str]) -> Mood:
    """The key says what goes wrong. Each attempt takes a moment, so that messages of a key meet."""
    tried: set[Name] = set()
    keys: set[str] = set()
    lock = Lock()

    def mood(delivery: Delivery) -> Reaction:
        name = Name(delivery.key, delivery.version)
        with lock:
            first, first_of_key = name not in tried, name.key not in keys
            tried.add(name)
            keys.add(name.key)
        seconds = 0.2
        match delivery.key.split("/")[1]:
            case "before" | "after" as kind if first_of_key:
                return Reaction(kill=True, taken=kind == "after", seconds=seconds)
            case "fails" if first and name.identity == "0":
                return Reaction(503, taken=False, seconds=seconds)
            case "poison" if name in poison:
                refused = poison[name] == REFUSED
                return Reaction(422 if refused else 500, poison[name] if refused else "", taken=False)
        return Reaction(seconds=seconds)

    return mood


def _of_dynamodb(times: int) -> tuple[Fault, ...]:
    """Return faults of the claim, of the lock and of the commit."""
    return (
        Fault(Trouble.THROTTLED, times, ("PutItem",)),
        Fault(Trouble.ANSWER_LOST, times, ("PutItem",)),
        Fault(Trouble.CUT, times, ("UpdateItem",)),
        Fault(Trouble.ANSWER_LOST, times, ("UpdateItem",)),
        Fault(Trouble.THROTTLED, times, ("TransactWriteItems",)),
        Fault(Trouble.ANSWER_LOST, times, ("TransactWriteItems",)),
        Fault(Trouble.INTERNAL_ERROR, times, ("TransactWriteItems", "UpdateItem", "PutItem")),
    )


def _of_dynamodb_in_turn(times: int) -> tuple[Fault, ...]:
    """Return the same faults with a pause after each failed operation.

    A failed record holds its shard back. Without pauses, one record would have all faults, and all its attempts would
    end without an outcome.
    """
    put, update, commit = (("PutItem",), ("UpdateItem",), ("TransactWriteItems",))
    failed = Fault(Trouble.THROTTLED, TRIES, commit)  # a second claim updates the row
    turns = (
        (Fault(Trouble.THROTTLED, TRIES, put),),
        (Fault(Trouble.ANSWER_LOST, TRIES, put),),
        (failed, Fault(Trouble.CUT, TRIES, update)),
        (failed, Fault(Trouble.ANSWER_LOST, TRIES, update)),
        (Fault(Trouble.ANSWER_LOST, TRIES, commit),),
        (Fault(Trouble.INTERNAL_ERROR, TRIES, (*commit, *update, *put)),),
    )
    pause = Fault(Trouble.NONE, TRIES)
    return tuple(replace(fault) for _ in range(-(-times // 6)) for turn in turns for fault in (*turn, pause))


def _commits(outbreak: Outbreak) -> int:
    """Return the greatest number of commits that have a fault."""
    return sum(fault.times for fault in outbreak.faults if "TransactWriteItems" in fault.operations)
