"""A durable function of Lambda as the processor."""

import pytest

from intake_ledger.protocol import DurableSettings, SettingsError, durable_settings

FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:Work:12"
VARIABLES = {
    "INTAKE_DURABLE_FUNCTION": FUNCTION,
    "INTAKE_DURABLE_EXECUTION_SECONDS": "259200",
    "INTAKE_DURABLE_INVOCATION_SECONDS": "900",
    "INTAKE_DURABLE_EVENT_AGE_SECONDS": "3600",
    "INTAKE_DURABLE_RETENTION_SECONDS": "1209600",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"INTAKE_DURABLE_FUNCTION": FUNCTION.removesuffix(":12")},
        {"INTAKE_DURABLE_FUNCTION": FUNCTION.replace(":12", ":$LATEST")},
        {"INTAKE_DURABLE_EXECUTION_SECONDS": "0"},
        {"INTAKE_DURABLE_INVOCATION_SECONDS": ""},
        {"INTAKE_DURABLE_EVENT_AGE_SECONDS": "59"},
        {"INTAKE_DURABLE_EVENT_AGE_SECONDS": "21601"},
        {"INTAKE_DURABLE_RETENTION_SECONDS": "86399"},
    ],
    ids=lambda wrong: ",".join(wrong.values()),
)
def test_settings_are_checked(wrong: dict[str, str]) -> None:
    assert durable_settings(VARIABLES) == DurableSettings(FUNCTION, 259_200, 900, 3600, 14 * 86_400)
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        durable_settings(VARIABLES | wrong)
