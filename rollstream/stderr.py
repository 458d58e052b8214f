"""Standard error as a place for log lines.

Invariant: logging never raises. The stream is looked up for each line, and one that is closed or gone loses the line
rather than the work that wanted to report something.
"""

from __future__ import annotations

import sys


class StandardError:
    """A text file that writes to whatever `sys.stderr` is at the moment."""

    def write(self, text: str) -> int:
        """Write `text`, or drop it when there is nowhere to write."""
        try:
            return sys.stderr.write(text)
        except (ValueError, OSError, AttributeError):
            return len(text)

    def flush(self) -> None:
        """Flush, if there is something to flush."""
        try:
            sys.stderr.flush()
        except (ValueError, OSError, AttributeError):
            return
