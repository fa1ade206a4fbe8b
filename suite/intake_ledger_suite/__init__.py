"""Tests of the deployed library, on a local AWS or on your account: two stacks, and a check for each assumption of AWS.

Run it with `pytest --pyargs intake_ledger_suite`, and with `--aws-account ID` on an account.
"""

MARKERS = (
    "thorough: is left out of the quick run on a local AWS",
    "assumptions(*ids): the lines of tests/truth/README.md that the test shows on an account",
    "only_on_aws(reason, steps=False): a local AWS cannot show it. With steps=True its steps run there all the same",
    "background: mostly waits, so it runs beside the others, and is awaited last",
    "changes(number): objects and messages that the test sends; 1 without the mark",
)
"""The marks of the tests."""
