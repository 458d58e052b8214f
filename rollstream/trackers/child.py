"""The process that speaks to one tracker: `python -m rollstream.trackers.child wandb|mlflow`, a JSON object on standard input.

Invariant: it ends with code 0 when the tracker has everything, else with one line on standard error.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from environments.extras import OURS, install_command
from rollstream.trackers.exporting import MLFLOW, WANDB
from rollstream.trackers.scalars import rollout_texts
from schemas import jsontext

TABLE, COLUMN = "Rollouts", "Rollout"

_NOT_MLFLOW = re.compile(r"[^A-Za-z0-9_\-. :/]")
"""What MLflow refuses in the name of a metric."""

_BATCH = 1_000
"""Metrics in one request to MLflow, its limit."""


def main() -> None:
    """Entry point; see the module."""
    payload = jsontext.loads(sys.stdin.buffer.read())
    try:
        {WANDB: to_wandb, MLFLOW: to_mlflow}[sys.argv[1]](payload)
    except ImportError as e:
        sys.exit(f"{e}; install it with: {install_command(OURS, sys.argv[1])}")
    except Exception as e:  # noqa: BLE001 - whatever a tracker raises is one line for the person who runs
        sys.exit(f"{type(e).__name__}: {' '.join(str(e).split())}")


def to_wandb(payload: Mapping[str, Any]) -> None:
    """One run of W&B: the metrics, and a table of the results."""
    import wandb

    s = payload["settings"]
    options = wandb.Settings(api_key=s["wandb_api_key"], console="off", silent=True)
    with wandb.init(project=s["wandb_project"], name=s["wandb_name"], config=payload["config"], settings=options) as run:
        logged: dict[str, Any] = dict(payload["metrics"])
        if payload["results"]:
            logged[TABLE] = wandb.Table(columns=[COLUMN], data=[[text] for text in _texts(payload)])
        run.log(logged)
        run.summary.update(payload["metrics"])


def to_mlflow(payload: Mapping[str, Any]) -> None:
    """One run of MLflow: the metrics, their exact names in `metrics.json`, and the results as a table."""
    s = payload["settings"]
    if s["mlflow_tracking_token"]:
        os.environ["MLFLOW_TRACKING_TOKEN"] = s["mlflow_tracking_token"]
    uri = s["mlflow_tracking_uri"]
    if uri.startswith("file:") or "://" not in uri:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # whoever names a folder has chosen it
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    name = s["mlflow_experiment_name"]
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known is not None else client.create_experiment(name)
    run_id = client.create_run(experiment, run_name=s["mlflow_run_name"]).info.run_id
    try:
        at = int(time.time() * 1_000)
        metrics = [Metric(mlflow_name(key), value, at, 0) for key, value in payload["metrics"].items()]
        client.log_batch(run_id, params=[Param(k, str(v)) for k, v in payload["config"].items()])
        for some in _batches(metrics):
            client.log_batch(run_id, metrics=some)
        client.log_text(run_id, jsontext.dumps(payload["metrics"]).decode(), "metrics.json")
        if payload["results"]:
            _table(client, run_id, _texts(payload))
    except BaseException:
        client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id)


def mlflow_name(key: str) -> str:
    """A metric's name in the letters that MLflow allows: `pass@1[avg-of-2]/x` is `pass_at_1.avg-of-2/x`."""
    return _NOT_MLFLOW.sub("_", key.replace("@", "_at_").replace("[", ".").replace("]", ""))


def _table(client: Any, run_id: str, texts: list[str]) -> None:
    """In the form in which MLflow shows tables; its own call for that needs pandas."""
    client.log_text(run_id, jsontext.dumps({"columns": [COLUMN], "data": [[t] for t in texts]}).decode(), f"{TABLE}.json")
    said = jsontext.dumps([{"path": f"{TABLE}.json", "type": "table"}]).decode()
    client.set_tag(run_id, "mlflow.loggedArtifacts", said)


def _texts(payload: Mapping[str, Any]) -> list[str]:
    texts, left = rollout_texts(Path(payload["results"]))
    if left:
        sys.stdout.write(f"the table of rollouts has the first {len(texts):,}; {left:,} more are in the results file\n")
    return texts


def _batches(metrics: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(metrics), _BATCH):
        yield metrics[start : start + _BATCH]


if __name__ == "__main__":
    main()
