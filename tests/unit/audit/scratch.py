"""The files of a run in parts without S3."""

import json
import shutil
from pathlib import Path
from typing import Any

from intake_ledger.audit.scratch import Scratch


class FolderScratch(Scratch):
    """The files of one run, in a folder that has the bucket's name."""

    def put_text(self, name: str, content: str) -> None:
        path = Path(self.bucket, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)

    def get(self, name: str) -> Any:
        path = Path(self.bucket, name)
        return json.loads(path.read_text()) if path.exists() else None

    def upload(self, path: Path) -> None:
        shutil.copy(path, self.bucket)

    def end(self, name: str, length: int, etag: str) -> tuple[bytes, int]:
        content = Path(self.bucket, name).read_bytes()
        assert etag == self.etags()[name]
        return content[-length:], len(content)

    def etags(self) -> dict[str, str]:
        return {path.name: str(path.stat().st_mtime_ns) for path in Path(self.bucket).iterdir()}

    def download(self, suffix: str, folder: Path) -> None:
        for path in Path(self.bucket).glob(f"*{suffix}"):
            shutil.copy(path, folder)
