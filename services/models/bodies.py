"""What goes into an engine's request besides the conversation, and who wins (platform.md D3).

Invariant: `extra_body` of the settings < `metadata.extra_body` of the request < the request's own fields <
`sampling_overrides`, at every place that builds a request; template arguments are merged key by key, the request's last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import jsontext
from schemas.errors import DataError
from services.models.options import EngineOptions

EXTRA_BODY, TEMPLATE_KWARGS = "extra_body", "chat_template_kwargs"


def metadata_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request's metadata; empty when it has none."""
    found = request.get("metadata")
    return found if isinstance(found, Mapping) else {}


def merged(own: Mapping[str, Any], request: Mapping[str, Any], options: EngineOptions) -> dict[str, Any]:
    """The body of an engine's request whose own fields are `own`. Raises `DataError`."""
    metadata = metadata_of(request)
    asked = _object_in(metadata, EXTRA_BODY)
    body = {**options.extra_body, **asked, **own}
    kwargs = {
        **_mapping(options.extra_body.get(TEMPLATE_KWARGS)),
        **options.chat_template_kwargs,
        **_mapping(asked.get(TEMPLATE_KWARGS)),
        **_object_in(metadata, TEMPLATE_KWARGS),
    }
    if kwargs:
        body[TEMPLATE_KWARGS] = kwargs
    return {**body, **options.sampling_overrides}


def _object_in(metadata: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object that metadata holds as JSON in a string (A2)."""
    value = metadata.get(name)
    if value is None or value == "":
        return {}
    try:
        found = jsontext.loads(value) if isinstance(value, str) else value
    except ValueError as e:
        raise DataError(f"metadata.{name} is not JSON: {e}") from e
    if not isinstance(found, Mapping):
        raise DataError(f"metadata.{name} must be a JSON object, found a {type(found).__name__}")
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
