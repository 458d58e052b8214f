from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.steps import Bench, bench


@pytest.fixture(name="bench")
async def _bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made
