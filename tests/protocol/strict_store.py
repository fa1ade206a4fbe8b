"""The store of the searches: it lets no request pass that DynamoDB refuses as malformed."""

from random import Random
from typing import NoReturn, override

from cdk_intake_ledger.testing import MemoryDynamoDB


class StrictDynamoDB(MemoryDynamoDB):
    """Fails the search at a request that DynamoDB refuses as malformed.

    As an error of AWS, the code under search would log it or suppress it, and return the message. It is not busy at
    random: a search repeats the requests of a history, and needs the same answers.
    """

    busy: Random | None = None

    @override
    def refuse(self, problem: str) -> NoReturn:
        raise AssertionError(f"DynamoDB refuses a request of the ledger: {problem}")
