"""How far a run has come, so that the next invocation goes on there. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from intake_ledger.audit.known import Known
from intake_ledger.audit.listing import Place
from intake_ledger.audit.report import Report
from intake_ledger.audit.shown import Shown
from intake_ledger.rows import RowKey


@dataclass(slots=True)
class Progress:
    """One run over the bucket: first the ledger's rows, then the listing, then the rows that no listing shows."""

    report: Report
    known: Known
    shown: Shown
    listing: Place | None = None
    """Where the listing goes on; None at the beginning."""
    listed: bool = False
    """Whether the listing has come to its end."""
    scanned: RowKey | None = None
    """The last row of the ledger that was looked at; None at the beginning and at the end."""
    complete: bool = False
    """Whether all rows were looked at."""
    refused: int = 0
    """How many invocations have stopped at the page that comes next, since SQS refused some of its messages."""

    def as_json(self, now: int) -> dict[str, Any]:
        """All of it but the filters, which are stored beside it."""
        known = self.known
        return {
            "report": self.report.as_json(now),
            "known": {
                "salt": known.salt.hex(),
                "after": asdict(known.after) if known.after else None,
                "count": known.count,
                "complete": known.complete,
            },
            "salt": self.shown.salt.hex(),
            "listing": asdict(self.listing) if self.listing else None,
            "listed": self.listed,
            "scanned": asdict(self.scanned) if self.scanned else None,
            "complete": self.complete,
            "refused": self.refused,
        }


def progress_of(content: Mapping[str, Any], report: Report) -> Progress:
    """The progress that `as_json` wrote, with empty filters yet."""
    known = content["known"]
    return Progress(
        report,
        Known(
            bytes.fromhex(known["salt"]),
            RowKey(**known["after"]) if known["after"] else None,
            count=known["count"],
            complete=known["complete"],
        ),
        Shown(bytes.fromhex(content["salt"])),
        Place(**content["listing"]) if content["listing"] else None,
        listed=content["listed"],
        scanned=RowKey(**content["scanned"]) if content["scanned"] else None,
        complete=content.get("complete", False),
        refused=content.get("refused", 0),
    )
