"""A scripted server that speaks the OpenAI Responses API, Chat Completions too.

It is a script, not a model: it has learnt nothing.

For a first run without a key, for tests and for benchmarks. Read `script` for what it answers, `server` for how it is
served, `fault` for how it can misbehave on purpose. `python -m rollstream.scripted` serves it from a process of its own.
"""

from rollstream.scripted.fault import Fault, FaultKind
from rollstream.scripted.options import Latency, Options
from rollstream.scripted.server import ScriptedModel

__all__ = ["Fault", "FaultKind", "Latency", "Options", "ScriptedModel"]
