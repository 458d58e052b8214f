"""A prompt whose environment lacks a package is refused at admission, in words that say what to install."""

from __future__ import annotations

from importlib import metadata

import pytest
from support.pipeline import mcqa
from support.steps import read

from environments.extras import OURS, install_command
from environments.registry import Registry
from schemas.rows import parse_row


@pytest.fixture
def without_numpy(monkeypatch):
    version = metadata.version

    def of(name):
        if name == "numpy":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", of)


@pytest.mark.usefixtures("without_numpy")
async def test_a_missing_package_is_the_failure_of_its_own_prompts(bench):
    folder = Registry.load().entry_of("math_with_code").folder
    row = parse_row((folder / "data" / "example.jsonl").read_bytes().splitlines()[0])
    (failure,) = [read(o) for o in await bench.admit(row)]
    assert (failure.failure_class, failure.outcome, failure.retryable) == ("data", "failed", False)
    assert f"it needs numpy>=2.2, not installed here: {install_command(OURS, 'math_with_code')}" in failure.message
    (out,) = await bench.admit(mcqa())
    assert read(out).rollout.environment == "mcqa"
