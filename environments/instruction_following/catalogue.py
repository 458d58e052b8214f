"""Where this environment's kinds of instruction are registered (`wording`, `layout`, `copying`)."""

from __future__ import annotations

from environments.common.instructions import Kinds

KINDS = Kinds()
