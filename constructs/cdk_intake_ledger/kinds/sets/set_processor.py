"""The processor of sets, as the consumer's construct takes it."""

import json

from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.sets.set_form import SetForm
from intake_ledger.protocol.settings import PART_LISTS, SET_FORM, SET_PARTS_PIPELINE


class SetProcessor(Processor):
    """A processor with the variables of sets."""

    def __init__(self, processor: Processor, *, form: SetForm, parts_pipeline: str, part_lists: str | None) -> None:
        """Take a processor.

        Args:
            processor: as for a pipeline.
            form: the form of the sets.
            parts_pipeline: the name of the pipeline of the parts.
            part_lists: the place of lists of parts for a processor elsewhere; None for one in the consumer's function.

        """
        self.__dict__.update(vars(processor))
        self._variables = {
            SET_FORM: json.dumps(form.settings),
            SET_PARTS_PIPELINE: parts_pipeline,
            **({PART_LISTS: part_lists} if part_lists else {}),
        }

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables of the processor and of the sets."""
        return super().settings | self._variables
