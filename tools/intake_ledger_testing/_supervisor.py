"""Keeps a local AWS from outliving the process that started it.

Run by file name as ``python _supervisor.py DIRECTORY KEEP COMMAND...`` in a session of its own, with a pipe on its
standard input whose other end the parent process holds. When that pipe closes, for whatever reason (a clean stop, an
exception, ``kill -9`` of the parent), everything in the process group is ended, the Lambda workers included, and the
state directory is removed unless KEEP is ``keep``. Works without any facility of one operating system alone.
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
    # To be survived, so that the clean-up happens. (A handler is not inherited by the server, it ends upon SIGTERM.)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=directory)

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        ending.set()
        # The workers end upon this signal; the server takes its time about it, and has nothing to save.
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
    # By itself it only ends when it could not start (its port was taken meanwhile) or crashed: the parent sees the code
    # and ends the Lambda workers that may be left in this group.
    return code


if __name__ == "__main__":
    sys.exit(main())
