"""The store of the searches: it lets no request pass that DynamoDB refuses as malformed."""

from typing import NoReturn, override

from cdk_intake_ledger.testing import MemoryDynamoDB


class StrictDynamoDB(MemoryDynamoDB):
    """Fails the search at a request that DynamoDB refuses as malformed.

    As an error of AWS, the code under search would log it or suppress it, and return the message.
    """

    @override
    def refuse(self, problem: str) -> NoReturn:
        raise AssertionError(f"DynamoDB refuses a request of the ledger: {problem}")
