"""Samples as Prometheus reads them: the text exposition format, version 0.0.4.

By hand, because it is three kinds of line and two rules for quoting, and every count exists already in the object that counts:
a client library would keep each a second time, in a registry that all workers of a process share, and take its time for that
where records pass. Invariant: samples of one name stand together under one HELP and one TYPE, and no two have the same labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's name (counters end in `_total`), what it says, and its kind."""

    name: str
    kind: Kind
    says: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric. `suffix` is of a histogram's parts: `_bucket`, `_sum`, `_count`."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


def histogram(
    metric: Metric, bounds: Iterable[float], counts: Iterable[int], total: float, labels: Mapping[str, str]
) -> list[Sample]:
    """The samples of a histogram; `counts` has one more than `bounds`, for what is above all of them."""
    samples, below = [], 0
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        below += count
        samples.append(Sample(metric, below, {**labels, "le": _number(bound)}, "_bucket"))
    return [*samples, Sample(metric, total, labels, "_sum"), Sample(metric, below, labels, "_count")]


def text(samples: Iterable[Sample]) -> str:
    """The page. Samples whose labels were said before add to that value: clients of one worker may share a name."""
    pages: dict[Metric, dict[str, float]] = {}
    for s in samples:
        values = pages.setdefault(s.metric, {})
        key = s.metric.name + s.suffix + _labels(s.labels)
        values[key] = values.get(key, 0) + s.value
    return "".join(_page(metric, values) for metric, values in pages.items())


def _page(metric: Metric, values: Mapping[str, float]) -> str:
    head = f"# HELP {metric.name} {_escaped(metric.says)}\n# TYPE {metric.name} {metric.kind}\n"
    return head + "".join(f"{key} {_number(value)}\n" for key, value in values.items())


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _quoted(value: str) -> str:
    return _escaped(value).replace('"', '\\"')


def _escaped(text: str) -> str:
    # Lone surrogates, too: no encoder takes them.
    return text.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(value)
