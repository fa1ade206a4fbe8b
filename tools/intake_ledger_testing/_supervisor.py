"""Ends a local AWS when the process that started it ends.

Run it as ``python _supervisor.py DIRECTORY KEEP COMMAND...`` in a new session, with a pipe as its standard input. When
the parent process closes the pipe or is killed, the supervisor ends all processes of its group, and removes the
directory unless KEEP is ``keep``. It needs nothing that only one operating system has.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path


def main() -> int:
    directory, keep, command = Path(sys.argv[1]), sys.argv[2] == "keep", sys.argv[3:]
    ending = threading.Event()
    # The supervisor survives SIGTERM to clean up. The server does not inherit this handler, so SIGTERM ends it.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=directory)

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        ending.set()
        # The workers end on this signal. The server ends slowly and has nothing to save.
        os.killpg(0, signal.SIGTERM)
        child.kill()
        child.wait()
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)

    watcher = threading.Thread(target=end_with_parent, daemon=True)
    watcher.start()
    code = child.wait()
    if ending.is_set():
        watcher.join()
    # The server ends by itself only if it could not start (its port was taken) or crashed. The parent sees the exit
    # code and ends the Lambda workers of this group.
    return code


if __name__ == "__main__":
    sys.exit(main())
