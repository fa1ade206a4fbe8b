"""Parts of the command `intake-ledger acceptance`."""

from intake_ledger_cli.acceptance import deployment
from intake_ledger_cli.acceptance.catalogue import CHECKS
from intake_ledger_cli.acceptance.checking import INTERRUPTED, Check, CheckFailed, NotHere, outcome_of
from intake_ledger_cli.acceptance.costs import estimate
from intake_ledger_cli.acceptance.document import AcceptanceReport, CostLine, Outcome, Result, dollars
from intake_ledger_cli.acceptance.metric_checks import NEW_KEY_REQUESTS, NEW_KEY_UNITS
from intake_ledger_cli.acceptance.page import render
from intake_ledger_cli.acceptance.running import run_checks
from intake_ledger_cli.acceptance.world import World
