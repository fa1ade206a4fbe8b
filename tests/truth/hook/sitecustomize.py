"""Records each request of botocore, in each process that has this folder on its PYTHONPATH.

Processes of deployed functions inherit that variable. Therefore `make deployed` records the functions, the command and
the tests themselves. Bodies are left out. Each process has its file in build/recorded/requests, if the folder exists.
"""

import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

REQUESTS = Path(__file__).parents[3] / "build" / "recorded" / "requests"
_OURS = ("/intake_ledger/", "/intake_ledger_cli/")
_FRAMES = 5
_BODIES = dict.fromkeys(("Body", "Payload", "ZipFile"), "")


def _callers() -> tuple[list[str], str]:
    """The modules of the project that make the request, nearest first, and the command that a person typed."""
    callers: list[str] = []
    command = ""
    frame: Any = sys._getframe(2)
    while frame:
        path = frame.f_code.co_filename
        for folder in _OURS:
            if folder in path and len(callers) < _FRAMES:
                callers.append(f"{(folder + path.rpartition(folder)[2])[1:]}:{frame.f_code.co_qualname}")
        if frame.f_code.co_name == "run" and _OURS[1] in path:
            arguments = frame.f_locals.get("arguments") or sys.argv[1:]
            command = " ".join([*arguments[:1], *(["--undo"] if "--undo" in arguments else [])])
        frame = frame.f_back
    return callers, command


def record(client: Any) -> None:
    """Let all clients of this module write their requests."""
    send = client.BaseClient._make_api_call

    def recorded(self: Any, operation: str, parameters: dict[str, Any]) -> Any:
        answer: Any = {}
        callers, command = _callers()
        try:
            return (answer := send(self, operation, parameters))
        except Exception as error:
            answer = getattr(error, "response", None) or {}
            raise
        finally:
            line = {
                "function": os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""),
                "command": command,
                "callers": callers,
                "service": self.meta.service_model.service_name,
                "operation": operation,
                "parameters": parameters | {name: "" for name in _BODIES if name in parameters},
                "status": answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
                "error": answer.get("Error", {}).get("Code", ""),
            }
            if REQUESTS.is_dir():
                with (REQUESTS / f"{os.getpid()}.jsonl").open("a") as file:
                    file.write(json.dumps(line, default=str) + "\n")

    client.BaseClient._make_api_call = recorded


class _Finder(MetaPathFinder):
    """Finds `botocore.client` as usual, and changes it when it has been imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != "botocore.client":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(fullname)
        execute = spec.loader.exec_module

        def execute_and_record(module: Any) -> None:
            execute(module)
            record(module)

        spec.loader.exec_module = execute_and_record
        return spec


if __name__ == "sitecustomize":  # and not where the recording imports this module for its names
    sys.meta_path.insert(0, _Finder())
