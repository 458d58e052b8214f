"""Audio that a request names in its metadata (platform.md D3).

Invariant: a file is read only when its name ends as an audio file's does, a relative path stays within `audio_root`, and
what is read is bounded. Blocking: call off the event loop.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import DataError

NAMES = ("audio_data", "audio_path", "audio_paths")

MAX_BYTES = 32 << 20
"""Of one file: half of what one request may have once it is written in base 64."""

_SUBTYPES = {".wav": "wav", ".flac": "flac", ".mp3": "mpeg", ".m4a": "mp4", ".ogg": "ogg", ".opus": "opus"}


def is_named(metadata: Mapping[str, Any]) -> bool:
    """Whether a request brings audio."""
    return any(metadata.get(name) for name in NAMES)


def urls(metadata: Mapping[str, Any], root: Path | None) -> list[str]:
    """The audio as data URIs, in order. Raises `DataError`."""
    named = [name for name in NAMES if metadata.get(name)]
    if len(named) != 1:
        raise DataError(f"metadata must have exactly one of {', '.join(NAMES)}, found {', '.join(named) or 'none'}")
    value = metadata[named[0]]
    if named[0] == "audio_data":
        if not isinstance(value, str) or not value.startswith("data:audio/"):
            raise DataError("metadata.audio_data must be a data URI that begins with data:audio/")
        return [value]
    paths = [value] if named[0] == "audio_path" else value
    if not isinstance(paths, list) or not all(isinstance(p, str) and p for p in paths):
        raise DataError(f"metadata.{named[0]} must be {'a path' if named[0] == 'audio_path' else 'a list of paths'}")
    return [_inlined(p, root) for p in paths]


def with_audio(messages: list[dict[str, Any]], found: list[str]) -> list[dict[str, Any]]:
    """The messages with the audio before the text of the last user message, which is made where there is none."""
    audio = [{"type": "audio_url", "audio_url": {"url": url}} for url in found]
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "user"), None)
    if last is None:
        return [*messages, {"role": "user", "content": audio}]
    content = messages[last]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return [*messages[:last], {**messages[last], "content": [*audio, *parts]}, *messages[last + 1 :]]


def _inlined(name: str, root: Path | None) -> str:
    path = _resolved(name, root)
    subtype = _SUBTYPES.get(path.suffix.lower())
    if subtype is None:
        raise DataError(f"audio file {name!r}: its name must end in one of {', '.join(_SUBTYPES)}")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as e:
        raise DataError(f"audio file {name!r}: {e.strerror or e}") from e
    if len(data) > MAX_BYTES:
        raise DataError(f"audio file {name!r} has more than {MAX_BYTES:,} bytes")
    return f"data:audio/{subtype};base64,{base64.b64encode(data).decode()}"


def _resolved(name: str, root: Path | None) -> Path:
    path = Path(name)
    if root is None:
        if not path.is_absolute():
            raise DataError(f"audio file {name!r} is a relative path: set audio_root to the folder it is meant in")
        return path
    resolved = (root / path).resolve()
    if not resolved.is_relative_to(root.resolve()):
        raise DataError(f"audio file {name!r} is not inside audio_root")
    return resolved
