"""The worlds that are explored: what happens to the key, and which faults may happen beside it.

SHORT is small enough for every test run; FULL is what `make prove` explores. Both must hold without exception.
"""

from tests.protocol.explorer import Scenario
from tests.protocol.program import Config

LATEST = Config()
EVERY = Config(every_version=True)
NO_DELETES = Config(deletes=False)
UNVERSIONED = Config(versioned=False)
BUDGET = Config(max_attempts=2)
GROUP = Config(group=True)
TRANSACT = Config(transact=True)
TOGETHER = Config(group=True, commit_together=True)

SHORT: dict[str, Scenario] = {
    "puts": Scenario("p p", crashes=1, deliveries=2),
    "puts, a slow worker": Scenario("p p", pauses=1),
    "puts, slow claims": Scenario("p p", slow=1, crashes=1),
    "rollback, slow claims": Scenario("p p d2", slow=1, strict=True),
    "vanished, slow claims": Scenario("p d1", slow=1, deliveries=2, strict=True),
    "puts, lost answers": Scenario("p p", answers=1),
    "puts, no audit": Scenario("p p", crashes=1, no_audit=True),
    "puts, misleading sequencers": Scenario("p p", crashes=1, no_audit=True, misleading=True),
    "rollback, misleading sequencers": Scenario("p p d2", misleading=True),
    "losses": Scenario("p p", losses=2),
    "marker": Scenario("p m"),
    "rollback": Scenario("p p d2", crashes=1),
    "undelete": Scenario("p m d2"),
    "unversioned": Scenario("A B A", UNVERSIONED),
    "unversioned, deleted": Scenario("A D A", UNVERSIONED),
    "markers, deletes off": Scenario("p m d2 m", NO_DELETES),
    "budget": Scenario("p", BUDGET, crashes=3, redrives=1),
    "budget, duplicates": Scenario("p", BUDGET, crashes=2, deliveries=2),
    "budget, an audit": Scenario("p", BUDGET, crashes=1, rejects=1, audits=1),
    "rejection": Scenario("p p", BUDGET, rejects=1, redrives=1),
    "rejection, rollback": Scenario("p p d2", BUDGET, rejects=1),
    "expiry": Scenario("p p", ticks=2),
    "expiry, late duplicates": Scenario("p", deliveries=2, ticks=3),
    "expiry, a noncurrent version deleted": Scenario("p p d1", ticks=2),
    "reprocess": Scenario("p", asks=(1, 2), ask_deliveries=2, crashes=1),
    "reprocess, budget": Scenario("p", BUDGET, asks=(1,), crashes=2),
    "reprocess, expired": Scenario("p", ticks=2, asks=(1,)),
    "groups": Scenario("p p", GROUP, crashes=1, deliveries=2),
    "groups, lost answers": Scenario("p p", GROUP, answers=1),
    "groups, slow claims": Scenario("p p", GROUP, slow=1, crashes=1),
    "groups, an audit": Scenario("p", GROUP, losses=1, crashes=1, audits=1),
    "groups, budget": Scenario("p", Config(max_attempts=2, group=True), crashes=1, answers=1, slow=1),
    "grouped commits": Scenario("p p", TOGETHER, crashes=1),
    "grouped commits, lost answers": Scenario("p p", TOGETHER, answers=1),
    "grouped commits, a slow worker": Scenario("p p", TOGETHER, pauses=1),
    "groups, markers, deletes off": Scenario("p m d2 m", Config(deletes=False, group=True)),
    "transactions": Scenario("p p", TRANSACT, crashes=1),
    "transactions, a slow worker": Scenario("p p", TRANSACT, pauses=1),
    "transactions, lost answers": Scenario("p p", TRANSACT, answers=1, crashes=1),
    "every version": Scenario("p p", EVERY, crashes=1, deliveries=2),
    "every version, deleted": Scenario("p p d1", EVERY, crashes=1),
    "every version, losses": Scenario("p p", EVERY, losses=2, crashes=1),
}

FULL: dict[str, Scenario] = SHORT | {
    "three puts": Scenario("p p p", crashes=2),
    "duplicates": Scenario("p p", deliveries=2, crashes=2),
    "marker between puts": Scenario("p m p", crashes=2),
    "rollback, two crashes": Scenario("p p d2", crashes=2),
    "rollback, duplicates": Scenario("p p d2", deliveries=2, crashes=1),
    "rollback, a slow worker": Scenario("p p d2", pauses=1, crashes=1),
    "noncurrent deleted": Scenario("p p d1", crashes=2),
    "undelete, crashes": Scenario("p m d2", crashes=2),
    "vanished, no audit": Scenario("p p d1 d2", no_audit=True),
    "vanished": Scenario("p d1 p", crashes=2),
    "vanished, duplicates": Scenario("p d1", deliveries=2, crashes=1),
    "unversioned, crashes": Scenario("A B A", UNVERSIONED, crashes=2),
    "unversioned, deleted, crashes": Scenario("A D A", UNVERSIONED, crashes=2),
    "unversioned, the same bytes": Scenario("A A B", UNVERSIONED, crashes=1),
    "three losses": Scenario("p p p", losses=3, audits=1),
    "losses, rollback": Scenario("p p d2", losses=3, audits=1),
    "lost answers": Scenario("p p", deliveries=2, crashes=1, answers=2),
    "lost answers, rollback": Scenario("p p d2", crashes=1, answers=1),
    "zombies": Scenario("p p", crashes=1, pauses=1),
    "an audit in the midst": Scenario("p p", crashes=1, audits=1),
    "an audit in the midst, rollback": Scenario("p p d2", audits=1),
    "an audit in the midst, unversioned": Scenario("A B A", UNVERSIONED, audits=1),
    "two slow workers": Scenario("p p", deliveries=2, pauses=2),
    "slow claims": Scenario("p p", slow=2, crashes=1, answers=1),
    "slow claims, rollback": Scenario("p p d2", slow=1, crashes=1),
    "slow claims, a slow worker": Scenario("p p", slow=1, pauses=1),
    "slow claims, budget": Scenario("p p", BUDGET, slow=2, crashes=1),
    "expiry, crash": Scenario("p p", deliveries=2, ticks=3, crashes=1),
    "expiry, noncurrent deleted, crash": Scenario("p p d1", ticks=3, crashes=1),
    "expiry, marker": Scenario("p m", deliveries=2, ticks=3),
    "expiry, audit and loss": Scenario("p p", ticks=2, audits=1, losses=1),
    "expiry, rollback of half-done work": Scenario("p p d2", ticks=1, crashes=1, forgetful=True),
    "expiry, redrive": Scenario("p", BUDGET, ticks=3, crashes=2, redrives=1),
    "expiry, unversioned": Scenario("A B", UNVERSIONED, deliveries=2, ticks=3),
    "budget, duplicates and redrive": Scenario("p", BUDGET, deliveries=2, crashes=3, redrives=1),
    "budget, an audit and redrive": Scenario("p", BUDGET, crashes=2, audits=1, redrives=1),
    "budget, a newer version": Scenario("p p", BUDGET, crashes=2, redrives=1),
    "budget, rollback": Scenario("p p d2", BUDGET, crashes=2, redrives=1),
    "budget, a slow worker": Scenario("p", BUDGET, crashes=1, pauses=1, redrives=1),
    "rejection, crash": Scenario("p p", BUDGET, rejects=1, crashes=1, redrives=1),
    "rejection, rollback, crash": Scenario("p p d2", BUDGET, rejects=1, crashes=1, redrives=1),
    "rejection, a slow worker": Scenario("p", BUDGET, rejects=1, crashes=1, pauses=1, redrives=1),
    "reprocess, an audit between": Scenario("p", crashes=1, asks=(1,), audits=1),
    "reprocess, out of order": Scenario("p", crashes=1, asks=(2, 1), ask_deliveries=2),
    "reprocess, a newer version": Scenario("p p", crashes=1, asks=(1,)),
    "reprocess, duplicates": Scenario("p", crashes=1, asks=(1,), deliveries=2, ask_deliveries=2),
    "deletes off": Scenario("p m p", NO_DELETES, crashes=1),
    "deletes off, undelete": Scenario("p m d2", NO_DELETES, crashes=1),
    "deletes off, unversioned": Scenario("A D A", Config(versioned=False, deletes=False), crashes=1),
    "deletes off, zombies": Scenario("p m", NO_DELETES, pauses=1, crashes=1),
    "grouped commits, duplicates": Scenario("p p", TOGETHER, crashes=1, deliveries=2),
    "grouped commits, zombies": Scenario("p p", TOGETHER, pauses=1, crashes=1, deliveries=2),
    "grouped commits, rollback": Scenario("p p d2", TOGETHER, crashes=1, answers=1),
    "grouped commits, budget": Scenario(
        "p", Config(max_attempts=2, group=True, commit_together=True), crashes=2, redrives=1
    ),
    "grouped commits, unversioned": Scenario(
        "A B A", Config(versioned=False, group=True, commit_together=True), crashes=1
    ),
    "grouped commits, every version": Scenario(
        "p p", Config(every_version=True, group=True, commit_together=True), deliveries=2, crashes=1
    ),
    "groups, zombies": Scenario("p p", GROUP, pauses=1, crashes=1, deliveries=2),
    "groups, rollback": Scenario("p p d2", GROUP, crashes=1, slow=1),
    "groups, unversioned": Scenario("A B A", Config(versioned=False, group=True), crashes=1),
    "groups, expiry": Scenario("p p", GROUP, deliveries=2, ticks=3),
    "groups, every version": Scenario("p p", Config(every_version=True, group=True), deliveries=2, crashes=1),
    "transactions, duplicates": Scenario("p p", TRANSACT, crashes=1, deliveries=2),
    "transactions, zombies": Scenario("p p", TRANSACT, pauses=1, crashes=1),
    "transactions, unversioned": Scenario("A B A", Config(versioned=False, transact=True), crashes=1),
    "transactions, every version": Scenario("p p", Config(every_version=True, transact=True), pauses=1, crashes=1),
    "every version, crashes": Scenario("p p", EVERY, deliveries=2, crashes=2),
    "every version, zombies": Scenario("p p", EVERY, pauses=1, crashes=1),
    "every version, lost answers": Scenario("p p", EVERY, answers=2, crashes=1),
    "every version, budget": Scenario("p", Config(every_version=True, max_attempts=2), crashes=3, redrives=1),
    "every version, rejection": Scenario("p p", Config(every_version=True, max_attempts=2), rejects=1, redrives=1),
    "every version, markers": Scenario("p m", EVERY, deliveries=2, crashes=1),
    "every version, expiry": Scenario("p p", EVERY, deliveries=2, ticks=2),
    "every version, unversioned": Scenario(
        "A B A", Config(every_version=True, versioned=False), deliveries=2, crashes=1
    ),
}
