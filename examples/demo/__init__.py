"""`make demo` compares the intake ledger with a hand-written consumer, on a local AWS with injected faults."""
