"""The place of work that answers later: the one that the variables name."""

from collections.abc import Callable, Mapping
from typing import Any

import botocore

from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.state_machine import StateMachine
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import DURABLE_FUNCTION, elsewhere_of, settings_from
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import execution_settings

_KNOWS_DURABLE = (1, 42, 1)
"""The first botocore whose Invoke has `DurableExecutionName`."""


def place_of(
    environment: Mapping[str, str],
    make_maker: Callable[[str], Callable[[], Any]],
    table: str,
    clock: Callable[[], int],
    *,
    release: str | None = None,
) -> StateMachine | DurableFunction:
    """The state machine or the durable function of these variables, which name one.

    Args:
        environment: the variables.
        make_maker: gives the function that makes a client of a service of AWS.
        table: the ledger's table.
        clock: gives epoch milliseconds.
        release: of the botocore that makes clients; the installed one when omitted.

    Raises:
        SettingsError: A variable is missing or malformed, or botocore knows no durable functions.

    """
    if elsewhere_of(environment) == DURABLE_FUNCTION:
        release = release or botocore.__version__
        if tuple(int(part) for part in release.split(".")[:3]) < _KNOWS_DURABLE:
            # Each start would fail, and look as one whose answer was lost.
            raise SettingsError(
                f"{DURABLE_FUNCTION} is set and botocore is {release}: install 1.42.1 or a later release"
            )
        return DurableFunction(make_maker("lambda"), settings_from(DurableSettings, environment), table, clock)
    return StateMachine(make_maker("stepfunctions"), execution_settings(environment))
