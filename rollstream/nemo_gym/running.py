"""`ng_run` leaves word of its configuration, `ng_collect_rollouts` in the same folder finds it while it runs.

In the reference the second asks the first, which serves its whole configuration with every secret in it. Here a file is left
that only this user can read. Invariant: a record counts only while the very process that left it is alive.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from schemas import jsontext


@contextmanager
def left(arguments: Sequence[str], here: Path | None = None) -> Iterator[Path]:
    """Leave word that this process runs in the folder `here` with these arguments, until the block ends."""
    path = _path(here or Path.cwd())
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    record = {"pid": os.getpid(), "started": _started(os.getpid()), "arguments": list(arguments)}
    draft = path.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(jsontext.dumps(record))
    draft.replace(path)
    try:
        yield path
    finally:
        if _read(path).get("pid") == os.getpid():
            path.unlink(missing_ok=True)


def found(here: Path | None = None) -> list[str] | None:
    """The arguments of the process that runs in the folder, or None when none does."""
    record = _read(_path(here or Path.cwd()))
    arguments = record.get("arguments")
    if not isinstance(arguments, list) or record.get("started") != _started(record.get("pid")):
        return None
    return [str(a) for a in arguments]


def _path(here: Path) -> Path:
    import platformdirs

    name = hashlib.sha256(os.fsencode(here.resolve())).hexdigest()[:32]
    return platformdirs.user_data_path("rollstream") / "nemo_gym" / f"{name}.json"


def _read(path: Path) -> dict[str, object]:
    try:
        value = jsontext.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _started(pid: object) -> float | None:
    """When a process was started; a process id alone may have gone to another one."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time()) if isinstance(pid, int) else None
    except (psutil.Error, ValueError):
        return None
