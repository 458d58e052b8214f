"""docs/environments.md, "From nothing to a scored rollout": the lines as they stand, on a real Kafka."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = f"""\
#!{sys.executable}
# Stands for pip: what `pip install -e DIR` would leave, without an index to ask.
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from support.installed import install
assert sys.argv[1:3] == ["install", "-e"], sys.argv
install(Path(sys.argv[3]), "unit_prices", Path(sys.argv[3], "pyproject.toml").read_text())
"""


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_the_first_lines_of_the_page_lead_to_scored_rollouts(kafka, topics, tmp_path):
    script = re.search(r"```sh\n(.*?)```", (ROOT / "docs/environments.md").read_text(), re.DOTALL)[1]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").write_text(PIP)
    (tmp_path / "bin" / "pip").chmod(0o755)
    env = os.environ | {
        "PATH": os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "unit_prices"), str(ROOT)]),
        "ROLLSTREAM_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "ROLLSTREAM_TOPICS__PREFIX": topics.prefix,
        "ROLLSTREAM_TOPICS__PARTITIONS": str(topics.partitions),
    }
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
    assert "│ failed " not in done.stdout
    assert "5 dispatched = 5 scored" in done.stdout
    [results] = [p for p in (tmp_path / "results").glob("*.jsonl") if not re.search("_(failures|materialized)", p.name)]
    assert all("reward" in json.loads(line) for line in results.read_text().splitlines())
