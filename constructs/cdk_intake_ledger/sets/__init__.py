"""Sets of files: a manifest and its parts, a folder that a marker closes, or a folder that is quiet."""

from cdk_intake_ledger.sets.file_sets import FileSets
from cdk_intake_ledger.sets.set_form import ManifestFormat, SetForm

__all__ = ["FileSets", "ManifestFormat", "SetForm"]
