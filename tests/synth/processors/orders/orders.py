"""The smallest processor there is: what it does is no matter to synthesis."""

from intake_ledger import ObjectChange


def process(change: ObjectChange) -> str:
    return change.key
