"""The place of work that answers later: the one that the variables name."""

from collections.abc import Callable, Mapping
from typing import Any

from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.protocol import DURABLE_FUNCTION, durable_settings, elsewhere_of, execution_settings


def place_of(
    environment: Mapping[str, str],
    make_maker: Callable[[str], Callable[[], Any]],
    table: str,
    clock: Callable[[], int],
) -> StateMachine | DurableFunction:
    """The state machine or the durable function of these variables, which name one.

    Args:
        environment: the variables.
        make_maker: gives the function that makes a client of a service of AWS.
        table: the ledger's table.
        clock: gives epoch milliseconds.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    if elsewhere_of(environment) == DURABLE_FUNCTION:
        return DurableFunction(make_maker("lambda"), durable_settings(environment), table, clock)
    return StateMachine(make_maker("stepfunctions"), execution_settings(environment))
