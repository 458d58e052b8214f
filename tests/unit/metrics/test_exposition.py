"""The exposition format, read by Prometheus's own parser (platform.md G4)."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from services.metrics import catalogue
from services.metrics.exposition import Metric, Sample, histogram, text
from services.runtime.histogram import BOUNDS_S, Histogram

LEVEL = Metric("level", "gauge", "How high,\nand \\ why")


def read(page):
    return {f.name: f for f in text_string_to_metric_families(page)}


@given(st.text(), st.floats(allow_nan=False))
def test_any_label_and_any_number_come_back(label, value):
    (sample,) = read(text([Sample(LEVEL, value, {"of": label})]))["level"].samples
    assert sample.labels["of"] == label.encode("utf-8", "replace").decode()
    assert sample.value == value


def test_a_name_has_one_head_and_equal_labels_one_line():
    page = text(
        [Sample(LEVEL, 1, {"a": "x"}), Sample(catalogue.READY, 1), Sample(LEVEL, 2, {"a": "x"}), Sample(LEVEL, 4, {"a": "y"})]
    )
    assert page.count("# TYPE level ") == 1
    assert [(s.labels, s.value) for s in read(page)["level"].samples] == [({"a": "x"}, 3), ({"a": "y"}, 4)]
    assert read(page)["level"].documentation == "How high,\nand \\ why"


def test_a_histogram_is_cumulative_and_bounds_are_inclusive():
    seen = Histogram()
    for seconds in (0.0005, 0.001, 0.3, 10_000.0):
        seen.observe(seconds)
    page = text(histogram(catalogue.SECONDS, BOUNDS_S, seen.counts, seen.total_s, {"stage": "tool"}))
    samples = {(s.name, s.labels.get("le")): s.value for s in read(page)["rollstream_stage_seconds"].samples}
    assert samples["rollstream_stage_seconds_bucket", "0.001"] == 2
    assert samples["rollstream_stage_seconds_bucket", "0.25"] == 2
    assert samples["rollstream_stage_seconds_bucket", "0.5"] == 3
    assert samples["rollstream_stage_seconds_bucket", "1800"] == 3
    assert samples["rollstream_stage_seconds_bucket", "+Inf"] == samples["rollstream_stage_seconds_count", None] == 4
    assert math.isclose(samples["rollstream_stage_seconds_sum", None], 10_000.3015)


def test_names_are_prometheus_s_and_no_two_are_alike():
    names = [m.name for m in catalogue.ALL]
    assert len(set(names)) == len(names) > 30
    assert all((m.kind == "counter") == m.name.endswith("_total") for m in catalogue.ALL)
