"""The settings of the function of sets of files, in addition to those of a consumer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import (
    PART_LISTS,
    SET_FORM,
    SET_PARTS_PIPELINE,
    ConsumerSettings,
    KeyFilter,
    Variable,
    elsewhere_of,
    settings_from,
    variable_of,
)
from intake_ledger.set_members.forms import FormSettings, set_form

if TYPE_CHECKING:
    from intake_ledger.protocol.exclude import Exclude


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
    """Without filters: a set's key need not pass those of its parts."""
    form: Annotated[FormSettings, Variable(SET_FORM, parse=_form)]
    parts_pipeline: Annotated[str, Variable(SET_PARTS_PIPELINE)]
    """The name of the pipeline whose objects are the parts."""
    part_filters: tuple[KeyFilter, ...] = ()
    """The filters of that pipeline."""
    exclude: "Exclude | None" = None
    """The patterns of keys that it leaves out."""
    part_lists: Annotated[str | None, Variable(PART_LISTS)] = None
    """The place of the lists of parts for a processor elsewhere: a bucket, a slash and a prefix. None: it is here."""

    def wants(self, key: str) -> bool:
        """True if the parts' pipeline handles the key."""
        return not self.part_filters or any(one.matches(key) for one in self.part_filters)


def set_settings(environment: Mapping[str, str]) -> SetSettings:
    """Read the settings of the function of sets.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    consumer = settings_from(ConsumerSettings, environment)
    if consumer.ordering is not Ordering.LATEST or consumer.deletes:
        ordering, deletes = (variable_of(ConsumerSettings, name) for name in ("ordering", "deletes"))
        raise SettingsError(f"sets of files need {ordering}=LATEST and {deletes}=false")
    # The key of a folder ends as that of a directory marker.
    settings = settings_from(
        SetSettings,
        environment,
        consumer=replace(consumer, filters=(), exclude=None, directory_markers=True),
        part_filters=consumer.filters,
        exclude=consumer.exclude,
    )
    if settings.part_lists is None and (consumer.processor_function is not None or elsewhere_of(environment)):
        raise SettingsError(
            f"{PART_LISTS} is not set: a processor of sets in another function or an execution reads the list "
            "of parts there. Set it to a bucket, a slash and a prefix"
        )
    if settings.parts_pipeline in ("", consumer.pipeline):
        raise SettingsError(
            f"{SET_PARTS_PIPELINE} is {settings.parts_pipeline!r}, expected the name of another pipeline"
        )
    return settings
