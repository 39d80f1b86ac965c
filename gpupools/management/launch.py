"""Run a command that must not outlive the process that started it, even if that one is killed.

Run as a script, on the standard library alone: `launch.py PARENT_PID COMMAND ...`. On Linux the kernel keeps the
promise and this process becomes the command; elsewhere it stays beside the command and watches.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1


def become(parent: int, command: list[str]) -> None:
    """Turn into the command, to be killed by the kernel when the parent ends (Linux)."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have ended before the kernel was asked.
    if os.getppid() != parent:
        sys.exit("the parent ended")
    os.execvp(command[0], command)  # noqa: S606  # the command is the supervisor's own


def accompany(parent: int, command: list[str]) -> int:
    """Run the command as a child, pass SIGTERM on, and kill it when the parent ends (other systems)."""
    child = subprocess.Popen(command)  # noqa: S603  # the command is the supervisor's own
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while child.poll() is None:
        if os.getppid() != parent:
            child.kill()
        time.sleep(0.5)
    return child.returncode


if __name__ == "__main__":
    if sys.platform == "linux":
        become(int(sys.argv[1]), sys.argv[2:])
    sys.exit(accompany(int(sys.argv[1]), sys.argv[2:]))
