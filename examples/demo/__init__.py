"""`make demo`: the intake ledger beside a hand-written consumer, on a local AWS, under everything that goes wrong."""
