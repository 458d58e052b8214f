"""Entry points of the reference's programs: `gym`, and the older words, which learn from their own name what they are.

Invariant: errors are lines on stderr and an exit code, as our commands have them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from rollstream.nemo_gym.calls import Call


def old() -> NoReturn:
    """Entry point of `ng_…` and `nemo_gym_…`."""
    from rollstream.nemo_gym.calls import old_call

    program = Path(sys.argv[0]).name
    _main(program, lambda: old_call(program, sys.argv[1:]))


def gym() -> NoReturn:
    """Entry point of `gym`."""
    from rollstream.nemo_gym.calls import new_call

    _main("gym", lambda: new_call(sys.argv[1:]))


def _main(program: str, read: Callable[[], Call]) -> NoReturn:
    from rollstream.nemo_gym.doing import do
    from rollstream.nemo_gym.errors import ConfigurationError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = do(read(), _say, _run)
    except ConfigurationError as e:
        for line in str(e).splitlines():
            _say(f"{program}: {line}")
        code = 2
    except KeyboardInterrupt:
        code = 130
    except OSError as e:
        _say(f"{program}: {e.filename}: {e.strerror}" if e.filename else f"{program}: {e}")
        code = 2
    sys.exit(code)


def _run(arguments: list[str]) -> Any:
    """Run one of our commands in this process; its exit code."""
    from rollstream.cli import app

    try:
        return app(args=arguments, prog_name="rollstream", standalone_mode=True)
    except SystemExit as e:
        return e.code


def _say(text: str) -> None:
    from rollstream.text import printable

    print("\n".join(printable(line) for line in text.splitlines()), file=sys.stderr)  # noqa: T201 - for the person there
