"""The processor of sets, as the consumer's construct takes it."""

import json

from cdk_intake_ledger.functions import Processor
from cdk_intake_ledger.sets.set_form import SetForm


class SetProcessor(Processor):
    """A processor with the handler and the variables of sets."""

    def __init__(self, processor: Processor, *, form: SetForm, parts_pipeline: str) -> None:
        """Take a processor.

        Args:
            processor: as for a pipeline.
            form: the form of the sets.
            parts_pipeline: the name of the pipeline of the parts.

        """
        self.__dict__.update(vars(processor))
        self._variables = {
            "INTAKE_SET_FORM": json.dumps(form.settings),
            "INTAKE_SET_PARTS_PIPELINE": parts_pipeline,
        }

    @property
    def handler(self) -> str:
        """The handler of sets."""
        return "intake_ledger.sets.handler"

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables of the processor and of the sets."""
        return super().settings | self._variables
