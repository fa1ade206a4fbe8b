"""The settings of the function of sets of files, in addition to those of a consumer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import (
    PART_LISTS,
    SET_FORM,
    SET_PARTS_PIPELINE,
    ConsumerSettings,
    Settings,
    Variable,
    elsewhere_of,
    missing,
    settings_from,
    settings_of_sets,
    variable_of,
)
from intake_ledger.set_members.forms import FormSettings, set_form


def _form(name: str, text: str) -> FormSettings:
    try:
        content = json.loads(text)
    except ValueError as problem:
        raise SettingsError(f"{name} is {text!r}, expected JSON: {problem}") from None
    return set_form(content, name)


@dataclass(frozen=True, slots=True)
class SetSettings:
    """The settings of one pipeline of sets."""

    consumer: ConsumerSettings
    """Those of the sets; see `settings_of_sets`."""
    form: Annotated[FormSettings, Variable(SET_FORM, parse=_form)]
    parts: Settings
    """Those of the pipeline whose objects are the parts."""
    part_lists: Annotated[str | None, Variable(PART_LISTS)] = None
    """The place of the lists of parts for a processor elsewhere: a bucket, a slash and a prefix. None: it is here."""


def set_settings(environment: Mapping[str, str]) -> SetSettings:
    """Read the settings of the function of sets.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    consumer = settings_from(ConsumerSettings, environment)
    if consumer.ordering is not Ordering.LATEST or consumer.deletes:
        ordering, deletes = (variable_of(ConsumerSettings, name) for name in ("ordering", "deletes"))
        raise SettingsError(f"sets of files need {ordering}=LATEST and {deletes}=false")
    if not (pipeline := environment.get(SET_PARTS_PIPELINE)):
        raise missing(SET_PARTS_PIPELINE)
    if pipeline == consumer.pipeline:
        raise SettingsError(f"{SET_PARTS_PIPELINE} is {pipeline!r}, expected the name of another pipeline")
    parts = replace(consumer, pipeline=pipeline)
    settings = settings_from(SetSettings, environment, consumer=settings_of_sets(consumer), parts=parts)
    if settings.part_lists is None and (consumer.processor_function is not None or elsewhere_of(environment)):
        raise SettingsError(
            f"{PART_LISTS} is not set: a processor of sets in another function or an execution reads the list "
            "of parts there. Set it to a bucket, a slash and a prefix"
        )
    return settings
