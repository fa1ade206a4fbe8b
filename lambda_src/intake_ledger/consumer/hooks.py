"""The points of an attempt at which options are asked. An option that is not set costs no call and no import.

    leaves_out ─► claim ─► before_open ─► ready ─► before_start ─► processor ─► commit ─► settled ─► acknowledge
        │                       │ raise NotNow         │                                     ▲
        ▼                       ▼                      ▼                                     │
    acknowledge             the row waits         the row waits              a ruling on a row without work

Each option is a module of `intake_ledger.options` with the name of its setting and a function `make`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Self

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import ConsumerSettings, variable_of

if TYPE_CHECKING:
    from types import ModuleType

    from intake_ledger.consumer.attempt import Failures
    from intake_ledger.events.parser import Message
    from intake_ledger.ledger.ledger import Claim
    from intake_ledger.protocol.change import Change
    from intake_ledger.protocol.row import Row, RowKey

OPTIONS = ("exclude", "after_commit", "ready_when", "same_content", "max_rate")
"""The settings whose options have hooks, in the order in which they are asked. `max_rate` stays last: nothing may end
an attempt between its start and the processor, or the start is lost."""

GUARDS = ("exclusive_by",)
"""The settings whose options guard claims. Their modules have a function `make_guard`."""
CHECKED = ("after_commit", "ready_when", "same_content", "exclude", "exclusive_by")
"""The settings whose options do not work with everything. Their modules have a function `check`."""


class Option:
    """An option that is set. It overrides the hooks that it needs."""

    def leaves_out(self, change: "Change") -> bool:  # noqa: ARG002 - for others
        """True if the change is acknowledged before it is judged, and gets no row."""
        return False

    def before_open(self, claim: "Claim") -> "Claim | None":
        """Ask for leave to read the object of a claim with work, before S3 is asked for it.

        Returns:
            the claim with what its commit records, or None if it stays as it is.

        Raises:
            NotNow: It may not be read now.
            Unchanged: Its work is done already.
            Unprocessable: It may never be.
            ObjectGone: S3 no longer holds it.

        """

    def before_start(self, claim: "Claim", message: "Message") -> None:
        """Ask for leave to start, just before the work starts: the object is open, and nothing has begun.

        Raises:
            NotNow: The work may not start now.

        """

    def settled(self, key: "RowKey", change: "Change", row: "Row", message: "Message") -> float | None:
        """Act on a row that this attempt has committed, or that needs no work. Its message is not acknowledged yet.

        Each message of the key may come here again, also after the death of a worker. So repeat what is done already
        without harm, or let the row say that it is done.

        Returns:
            the seconds until the message comes again for it, or None if it is done.

        """


@dataclass(frozen=True, slots=True)
class Hooks:
    """The options' methods for each point, in order. An empty tuple is not asked."""

    leaves_out: "tuple[Callable[[Change], bool], ...]" = ()
    before_open: "tuple[Callable[[Claim], Claim | None], ...]" = ()
    before_start: "tuple[Callable[[Claim, Message], None], ...]" = ()
    settled: "tuple[Callable[[RowKey, Change, Row, Message], float | None], ...]" = ()

    @classmethod
    def of(cls, options: Iterable[Option]) -> Self:
        """The hooks that these options override."""
        given = list(options)
        return cls(
            **{
                hook.name: tuple(
                    getattr(option, hook.name)
                    for option in given
                    if getattr(type(option), hook.name) is not getattr(Option, hook.name)
                )
                for hook in fields(cls)
            }
        )


NO_HOOKS = Hooks()


def hooks_of(settings: ConsumerSettings, failures: "Failures") -> Hooks:
    """The hooks of the options that are set. Only their modules are imported."""
    modules = modules_of(settings, OPTIONS)
    return Hooks.of(module.make(failures) for module in modules) if modules else NO_HOOKS


def check_options(settings: ConsumerSettings, kinds: Mapping[str, str], executions: str | None) -> None:
    """Refuse an option that cannot work.

    Args:
        settings: of the consumer.
        kinds: the kind of work, with a variable that names it. Empty for objects.
        executions: the variable that names a processor in executions. None: the processor has none.

    Raises:
        SettingsError: The text names the variables.

    """
    for module in modules_of(settings, CHECKED):
        module.check(settings, kinds, executions)


def refuse_without_versions(setting: str, kinds: Mapping[str, str]) -> None:
    """Refuse the setting of an option about versions for work that has none. `kinds` is as for `check_options`."""
    own = variable_of(ConsumerSettings, setting)
    for kind, name in kinds.items():
        raise SettingsError(f"{own} and {name} are set, and {kind} have no version in S3: omit {own}")


def modules_of(settings: ConsumerSettings, names: Iterable[str]) -> "list[ModuleType]":
    """The modules of options that are set: the setting differs from its default."""
    off = {field.name: field.default for field in fields(settings)}
    return [import_module(f"intake_ledger.options.{name}") for name in names if getattr(settings, name) != off[name]]
