"""Stands between a process and the JVM that it started, so that neither outlives the other. Run as a script.

    python -I -S guard.py GRACE_S COMMAND...

Writes the JVM's process id to stdout, then waits. When its stdin closes, which the kernel sees to however the starter
ends, the JVM is asked to stop, and killed after GRACE_S seconds. When the JVM ends, so does the guard, with its status.

It imports nothing but the standard library, and little of that: it delays every start by its own start (about 20 ms).
A JVM tied directly to its starter by the kernel would be tied to the *thread* that started it, which may end early, and
would be killed without the chance to close its files.
"""

import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1


def main() -> int:
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    guard = os.getpid()
    # stderr is the broker's log; stdout goes back to the starter and is ours. Inherited descriptors carry the lock.
    jvm = subprocess.Popen(  # noqa: S603  the command comes from our own starter
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        close_fds=False,
        preexec_fn=lambda: _die_with(guard),  # noqa: PLW1509  there are no threads yet
    )
    signal.signal(signal.SIGTERM, lambda _number, _frame: jvm.terminate())
    os.write(1, b"%d\n" % jvm.pid)
    threading.Thread(target=_stop_at_end_of_input, args=(jvm, grace_s), daemon=True).start()
    return jvm.wait() & 0xFF


def _stop_at_end_of_input(jvm: subprocess.Popen[bytes], grace_s: float) -> None:
    while os.read(0, 1024):
        pass
    jvm.terminate()
    try:
        jvm.wait(grace_s)
    except subprocess.TimeoutExpired:
        jvm.kill()


def _die_with(guard: int) -> None:
    """On Linux, have the kernel kill this process when the guard itself is killed."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it was killed before the line above
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
