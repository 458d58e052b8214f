"""The dashboard and the scrape configuration name what exists (platform.md G4)."""

import json
import re
from pathlib import Path

import pytest
import yaml

from services.metrics import catalogue

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy/grafana/rollstream.json").read_text())
EXPRESSIONS = {(p["title"], t["refId"]): t["expr"] for p in DASHBOARD["panels"] for t in p["targets"]}
NAMES = {m.name: m.kind for m in catalogue.ALL}
LABELS = {"job", "instance", "stage", "topic", "worker", "class", "kind", "model", "reason", "state", "le"}
NAME = re.compile(r"\b(?:rollstream|process)_\w+")


def metric(name):
    """The metric that a series is of."""
    return name if name in NAMES else re.sub(r"_(bucket|sum|count)$", "", name)


@pytest.mark.parametrize("where", EXPRESSIONS, ids=str)
def test_every_metric_of_the_dashboard_exists_and_is_used_as_its_kind_allows(where):
    expression = EXPRESSIONS[where]
    used = NAME.findall(expression)
    assert len(used) == 1
    kind = NAMES[metric(used[0])]
    assert (kind in ("counter", "histogram")) == bool(re.search(r"\b(rate|increase)\(", expression))
    assert expression.count("(") == expression.count(")")
    by = re.search(r"by \(([^)]*)\)", expression)
    assert {label.strip() for label in by[1].split(",")} <= LABELS if by else True
    assert 'job=~"$job"' in expression


def test_panels_have_places_and_ids_of_their_own_and_variables_exist():
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}) == len(panels)
    assert {v["name"] for v in DASHBOARD["templating"]["list"]} == {"source", "job"}
    assert NAME.findall(json.dumps(DASHBOARD["templating"])) == ["rollstream_worker_ready"]


def test_what_an_operator_has_to_see_is_there():
    shown = {metric(n) for e in EXPRESSIONS.values() for n in NAME.findall(e)}
    left_out = {catalogue.BUILD.name, catalogue.STARTED.name, catalogue.DELIVERED.name, catalogue.FINISHED.name}
    left_out |= {catalogue.COMMITS.name, catalogue.MODEL_RETRIED.name, catalogue.MODEL_OVERFLOWS.name}
    assert shown | left_out == set(NAMES)


def test_prometheus_scrapes_the_workers_of_the_compose_file_at_their_health_port():
    (job,) = yaml.safe_load((ROOT / "deploy/prometheus.yml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    assert set(found["names"]) == {n for n, s in services.items() if s.get("command", [""])[0] == "worker"}
    image = (ROOT / "deploy/Containerfile").read_text()
    assert f"ROLLSTREAM_HEALTH__PORT={found['port']}" in image
    assert job.get("metrics_path", "/metrics") == "/metrics"
