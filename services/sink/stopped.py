"""The one error that stops a sink."""

from __future__ import annotations

import errno
from pathlib import PurePath

from services.runtime.delivery import StopWorkerError


class SinkStoppedError(StopWorkerError):
    """The output cannot be written (or must not be), and going on would lose lines.

    Invariant: when it is raised, what is on disk ends with a whole line and can be continued from.
    """


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota or free some space",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.EROFS: "choose a writable place",
    errno.EACCES: "give this user write permission or choose another place",
    errno.EPERM: "give this user write permission or choose another place",
    errno.ENOTDIR: "choose a path whose parents are directories",
    errno.EISDIR: "name a file, not a directory",
}


def stopped(path: PurePath | str, error: OSError, doing: str = "write") -> SinkStoppedError:
    """The error for an operation on `path` that the system refused: what, where, and what to do."""
    advice = _ADVICE.get(error.errno or 0, "see to the cause")
    reason = error.strerror or str(error)
    return SinkStoppedError(f"cannot {doing} {path}: {reason}; {advice}, then resume: nothing that was finished is lost")
