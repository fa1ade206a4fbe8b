"""The settings of the function of sets of files, in addition to those of a consumer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from intake_ledger.protocol import ConsumerSettings, KeyFilter, Ordering, SettingsError, consumer_settings
from intake_ledger.set_members import FormSettings, set_form


@dataclass(frozen=True, slots=True)
class SetSettings:
    """The settings of one pipeline of sets."""

    consumer: ConsumerSettings
    """Without filters: a set's key need not pass those of its parts."""
    form: FormSettings
    parts_pipeline: str
    """The name of the pipeline whose objects are the parts."""
    part_filters: tuple[KeyFilter, ...] = ()
    """The filters of that pipeline."""
    part_lists: str | None = None
    """The place of the lists of parts for a processor elsewhere: a bucket, a slash and a prefix. None: it is here."""

    def wants(self, key: str) -> bool:
        """True if the parts' pipeline handles the key."""
        return not self.part_filters or any(one.matches(key) for one in self.part_filters)


def set_settings(environment: Mapping[str, str]) -> SetSettings:
    """Read the settings of the function of sets.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    consumer = consumer_settings(environment)
    if consumer.ordering is not Ordering.LATEST or consumer.deletes:
        raise SettingsError("sets of files need INTAKE_ORDERING=LATEST and INTAKE_DELETES=false")
    lists = environment.get("INTAKE_PART_LISTS") or None
    if lists is None and (consumer.processor_function is not None or environment.get("INTAKE_STATE_MACHINE")):
        raise SettingsError(
            "INTAKE_PART_LISTS is not set: a processor of sets in another function or a state machine reads the list "
            "of parts there. Set it to a bucket, a slash and a prefix"
        )
    described, parts_pipeline = environment.get("INTAKE_SET_FORM", ""), environment.get("INTAKE_SET_PARTS_PIPELINE", "")
    if not parts_pipeline or parts_pipeline == consumer.pipeline:
        raise SettingsError(f"INTAKE_SET_PARTS_PIPELINE is {parts_pipeline!r}, expected the name of another pipeline")
    try:
        content = json.loads(described)
    except ValueError as problem:
        raise SettingsError(f"INTAKE_SET_FORM is {described!r}, expected JSON: {problem}") from None
    form = set_form(content, "INTAKE_SET_FORM")
    # The key of a folder ends as that of a directory marker.
    consumer_of_sets = replace(consumer, filters=(), directory_markers=True)
    return SetSettings(consumer_of_sets, form, parts_pipeline, consumer.filters, lists)
