"""Example rows of an environment, of one of its variants, of a variant of one's own."""

import json

import pytest

from environments.own import OwnVariant
from environments.registry import Registry
from rollstream.runner.plan import RunRequest, open_rows
from rollstream.runner.prepare import configuration
from rollstream.settings.model import Settings

OWN = {"mine": OwnVariant(environment="mcqa", agent={"name": "my_agent"})}


def agents(tmp_path, name, limit=0, own=OWN):
    request = RunRequest(tmp_path / "r.jsonl", environments=(name,), limit=limit)
    with open_rows(request, Registry.load(own)) as (file, _, left):
        assert left == 0
        return [json.loads(line)["agent_ref"]["name"] for line in file.read().splitlines()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mcqa", ["mcqa_simple_agent"] * 6),
        ("mine", ["my_agent"] * 6),
        ("calendar_v2", ["calendar_v2_simple_agent"] * 3),
        ("calendar", ["calendar_simple_agent"] * 3 + ["calendar_v2_simple_agent"] * 3),
        ("aviary", ["gsm8k_aviary_agent"] * 4 + ["hotpotqa_aviary_agent"] * 3),
        ("hotpotqa_aviary", ["hotpotqa_aviary_agent"] * 3),
        ("xstest_wildguard", ["xstest_wildguard_simple_agent"] * 6),
    ],
)
def test_a_variant_runs_its_own_rows_or_all_under_its_agent(tmp_path, name, expected):
    assert sorted(agents(tmp_path, name)) == sorted(expected)


def test_a_variant_that_replaces_the_environments_only_one_gets_all_rows(tmp_path):
    own = {"mcqa": OwnVariant(environment="mcqa", agent={"name": "my_agent"})}
    assert agents(tmp_path, "mcqa", own=own) == ["my_agent"] * 6


def test_the_limit_counts_rows_of_the_variant(tmp_path):
    assert agents(tmp_path, "calendar_v2", limit=2) == ["calendar_v2_simple_agent"] * 2


def test_a_run_is_another_when_its_variants_are():
    plain = configuration(Settings(), {"limit": 0})
    assert "variants" not in plain["arguments"]
    assert configuration(Settings(variants=OWN), {"limit": 0})["arguments"]["variants"]["mine"]["environment"] == "mcqa"
