"""How this library's warnings are called, so that a team can acknowledge them by id."""

WARNING_PREFIX = "cdk-intake-ledger"
