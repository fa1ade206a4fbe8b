"""The option `exclude`: keys that match a pattern get no row, and no request but the look for one."""

from collections.abc import Mapping
from dataclasses import dataclass

from intake_ledger.consumer.attempt import Failures
from intake_ledger.consumer.hooks import Option
from intake_ledger.consumer.services import Services
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import ConsumerSettings, variable_of
from intake_ledger.set_members.forms import SetTarget, set_targets


@dataclass(slots=True, eq=False)
class LeavesOut(Option):
    """Leaves out changes of keys that match a pattern, and that the ledger does not know."""

    services: Services
    targets: tuple[SetTarget, ...]
    """The sets of the pipeline. Their manifests and markers are never left out."""

    def leaves_out(self, change: Change) -> bool:
        """See `Option`. A key with a row goes on, and so does a rejected change that a person has redriven.

        Raises:
            ClientError: DynamoDB does not answer. Also BotoCoreError.

        """
        if not self.services.settings.excludes(change.key) or change.rejected_fence is not None:
            return False
        if any(target.form.is_control(change.key) for target in self.targets) or self.services.ledger.has_row(change):
            return False
        self.services.telemetry.excluded(change)
        return True


def check(settings: ConsumerSettings, kinds: Mapping[str, str], _executions: str | None) -> None:
    """Refuse messages, and removals that would be lost; see `check_options`."""
    own, deletes = (variable_of(ConsumerSettings, name) for name in ("exclude", "deletes"))
    if source := kinds.get("messages"):
        raise SettingsError(f"{own} and {source} are set, and messages are no files: omit {own}")
    if settings.deletes and settings.ordering is Ordering.EVERY_VERSION:
        raise SettingsError(f"{own} and {deletes} are set, and a delete marker names no version: omit one of them")


def make(failures: Failures) -> LeavesOut:
    """The option of a pipeline with `exclude`."""
    services, settings = failures.services, failures.services.settings
    return LeavesOut(services, set_targets(settings.sets) if settings.sets else ())
