"""Where an engine's routes are, from its base URL.

Invariant: `default_query` is on every URL that a request goes to.
"""

from __future__ import annotations

from urllib.parse import quote

from yarl import URL

from services.models.endpoint import ModelEndpoint
from services.models.options import Engine

_DEPLOYMENTS = "/openai/deployments/"


def chat_url(endpoint: ModelEndpoint) -> URL:
    """Where chat completions are created.

    At Azure OpenAI a resource's URL becomes that of the deployment named like the model; a URL that names a deployment
    already, or the newer `…/openai/v1`, is taken as it is.
    """
    base = endpoint.base_url
    if endpoint.options.engine is Engine.AZURE and _DEPLOYMENTS not in base and not base.endswith("/v1"):
        base = f"{base.removesuffix('/openai')}{_DEPLOYMENTS}{quote(endpoint.name, safe='')}"
    return _queried(f"{base}/chat/completions", endpoint)


def completions_url(endpoint: ModelEndpoint) -> URL:
    """Where text completions are created."""
    return _queried(f"{endpoint.base_url}/completions", endpoint)


def tokenize_url(endpoint: ModelEndpoint) -> URL:
    """Where vLLM tells how it tokenizes: beside its API, not in it."""
    return _queried(f"{endpoint.base_url.removesuffix('/v1')}/tokenize", endpoint)


def _queried(url: str, endpoint: ModelEndpoint) -> URL:
    return URL(url, encoded=True).update_query(endpoint.options.default_query)
