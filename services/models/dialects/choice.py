"""Which dialect an endpoint is spoken to in: looked up once, when its client is made."""

from __future__ import annotations

from services.models.dialects.native import Adjusted, Plain
from services.models.endpoint import ModelEndpoint
from services.models.options import Engine
from services.models.wire import Dialect


def dialect_of(endpoint: ModelEndpoint) -> Dialect:
    """The dialect of an endpoint's engine. Those that convert are imported when one is asked for."""
    options = endpoint.options
    if options.is_plain:
        return Plain(endpoint)
    if options.engine is Engine.RESPONSES or options.is_responses_native:
        return Adjusted(endpoint)
    if options.engine is Engine.COMPLETIONS:
        from services.models.dialects.completions import Completions

        return Completions(endpoint)
    from services.models.dialects.chat import Chat

    return Chat(endpoint)
