"""`requires`: programs without which a case is skipped."""

from __future__ import annotations

import importlib.util
import shutil

from tests.conformance.cases import Case
from tests.conformance.forms.form import Form


class Programs(Form):
    """Skips a case whose programs (or Python packages) are not installed."""

    keys = frozenset({"requires"})

    def obstacle(self, case: Case) -> str | None:
        missing = [p for p in case.data.get("requires") or () if not shutil.which(p) and not importlib.util.find_spec(p)]
        return f"not installed: {', '.join(missing)}" if missing else None
