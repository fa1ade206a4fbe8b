"""How this library's warnings are called, so that a team can acknowledge them by id."""

TOPIC = "cdk-intake-ledger"
