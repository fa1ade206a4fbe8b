"""The sets of files that are made of a pipeline's objects, as the pipeline knows them."""

from intake_ledger.set_members.forms import (
    MAX_PARTS,
    FormKind,
    FormSettings,
    PartsFormat,
    SetTarget,
    set_form,
    set_targets,
)
from intake_ledger.set_members.membership import Membership, expirations_key
from intake_ledger.set_members.wakes import Wake, Wakes

__all__ = [
    "MAX_PARTS",
    "FormKind",
    "FormSettings",
    "Membership",
    "PartsFormat",
    "SetTarget",
    "Wake",
    "Wakes",
    "expirations_key",
    "set_form",
    "set_targets",
]
