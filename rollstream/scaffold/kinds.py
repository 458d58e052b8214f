"""The kinds of environments there are templates for."""

from __future__ import annotations

from pathlib import Path

KINDS = {
    "score": "score the text of the reply",
    "judge": "ask a judge model",
    "sandbox": "run code of the model in the sandbox",
    "tools": "tools without memory",
    "state": "tools that change a state, which travels with the rollout",
    "session": "a live session in the sandbox, rebuilt from its journal",
    "row-tools": "tools given by the row; nothing is executed",
    "partner": "a partner that answers each turn of the policy",
    "group": "score all rollouts of a task together",
    "agent": "an agent of its own: several model calls in an order of its own",
    "cpu": "a verifier that computes for long, in a process of its own",
}
"""Kind to what it is, in the order in which they are listed."""

TEMPLATES = Path(__file__).parent / "templates"


def template_folder(kind: str) -> Path:
    """The template of a kind in `KINDS`."""
    return TEMPLATES / kind.replace("-", "_")
