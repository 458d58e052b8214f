"""The examples of the documents: code blocks, what each is, and a shell in which a page's commands run in order.

A block is preceded by a comment that says what becomes of it in the tests: `<!-- example: KIND -->`. Invariant: a block without
a known kind is an error, so no example is passed over.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = (
    "README.md",
    "docs/collection.md",
    "docs/guarantees.md",
    "docs/models.md",
    "docs/nemo-gym.md",
    "docs/http.md",
    "docs/observability.md",
    "docs/operations.md",
    "docs/reverify.md",
    "docs/sandbox.md",
    "docs/decisions/exactly-once-by-partition-producers.md",
    "deploy/README.md",
    *(["docs/performance.md"] if (ROOT / "docs/performance.md").exists() else []),
)
"""Pages whose every block has a kind."""

OTHERS = {"docs/environments.md": "tests/unit/environments/test_docs_environments.py"}
"""Pages with blocks of another form, and the tests that run them."""

SESSIONS = (
    "README.md",
    "docs/observability.md",
    "docs/collection.md",
    "docs/operations.md",
    "docs/reverify.md",
    "docs/nemo-gym.md",
)
"""Pages with commands and programs that run on a real broker (`tests/integration/test_docs_examples.py`)."""

ALONE = ("docs/http.md",)
"""Pages with commands and programs that need no broker (`tests/unit/docs/test_docs_http.py`)."""

KINDS = {
    "session": "run in order, in one shell, on a real broker",
    "output": "lines that the blocks since the last output have printed, numbers aside",
    "check": "run with a uv that writes down what it is told",
    "picture": "names topics and stages that exist",
    "settings": "a settings file that loads, or variables that do",
    "compose": "arguments for a container engine: files, services and our own commands exist",
    "benchmark": "commands that run for minutes: their modules and scripts exist",
    "format": "a form, not an example; its names are checked",
}

_MARKED = re.compile(
    r"(?:^<!-- example: (?P<kind>\S+) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_TABLE = re.compile(r"^<!-- table: (\S+) -->\n(.*?)^<!-- end of table -->$", re.MULTILINE | re.DOTALL)
_DRAIN_S = 30
_PORTS = ("8001", "8081", "8082", "11000")
_BROKER = "localhost:9092"


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    kind: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: str, kind: str | None = None) -> list[Block]:
    """The blocks of a page, in order."""
    text = read(page)
    found = [
        Block(page, text.count("\n", 0, m.start()) + 1, m["kind"] or "", m["language"], m["text"])
        for m in _MARKED.finditer(text)
    ]
    return [b for b in found if kind in (None, b.kind)]


def all_blocks(kind: str) -> list[Block]:
    return [b for page in PAGES for b in blocks(page, kind)]


def tables(page: str) -> dict[str, str]:
    """The marked tables of a page, by name."""
    return dict(_TABLE.findall(read(page)))


def rows(table: str) -> Iterator[list[str]]:
    """The cells of a table's body, without the code marks around them."""
    for line in table.strip().splitlines()[2:]:
        yield [cell.strip().strip("`") for cell in line.strip().strip("|").split(" | ")]


def links(page: str) -> list[str]:
    """Targets of a page's links, those outside the project left out."""
    text = _MARKED.sub("", read(page))
    return [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in t]


def anchors(page: str) -> set[str]:
    """Anchors of a page's headings, as forges make them."""
    heads = re.findall(r"^#+ (.+)$", _MARKED.sub("", read(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


class Session:
    """A shell in a scratch project in which a page's blocks run as they stand.

    Changed are: the ports in `_PORTS`, for free ones; `localhost:9092`, for the address in `kafka` or of the local broker. Played by
    stand-ins: uv, which would install what is installed; and kcat, where it is missing.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], kafka: str = "") -> None:
        self.folder = folder
        self.log = folder / "session.log"
        self._ports = {port: str(free_port()) for port in _PORTS}
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        _program(bin_folder / "uv", _UV)
        if shutil.which("kcat") is None:
            _program(bin_folder / "kcat", f"#!{sys.executable}\n{_KCAT}")
        (folder / ".venv").symlink_to(sys.prefix)
        for name in ("quickstart", "check", "scripts", "environments"):
            (folder / name).symlink_to(ROOT / name)
        # `uv run` names itself in UV, which our scripts would take before the stand-in.
        clean = {k: v for k, v in os.environ.items() if k != "UV" and not k.startswith(("ROLLSTREAM_", "VIRTUAL_ENV"))}
        path = os.pathsep.join([str(bin_folder), *([str(folder / ".venv" / "bin")] if kafka else []), os.environ["PATH"]])
        own = {"PATH": path, "KAFKA": kafka, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"}
        cache = {k: v for k, v in os.environ.items() if k == "ROLLSTREAM_CACHE_DIR"}
        self._env = {**clean, **cache, **own, **_places(folder), **env}

    def run(self, wanted: list[Block], timeout_s: float) -> dict[int, str]:
        """Run the blocks; what each has printed, by its line in the page. Fails with the log when one of them does."""
        script = self.folder / "session.sh"
        script.write_text(self._script(wanted))
        with self.log.open("w") as log:
            shell = subprocess.Popen(
                ["bash", str(script)], cwd=self.folder, env=self._env, stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | str = shell.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = f"still running after {timeout_s:g} s"
            finally:
                self._end(shell)
        text = self.log.read_text(errors="replace")
        assert code == 0, f"exit {code}:\n{text}"
        parts = re.split(r"^@@ (\d+)\n", text, flags=re.MULTILINE)
        return {int(line): said for line, said in zip(parts[1::2], parts[2::2], strict=True)}

    def _script(self, wanted: list[Block]) -> str:
        lines = ["set -eu -o pipefail", f"export PYTHON={sys.executable}"]
        for block in wanted:
            lines.append(f"printf '\\n@@ {block.line}\\n'")
            text = block.text
            for port, free in self._ports.items():
                text = text.replace(port, free)
            if block.language == "python":
                name = f"example_{block.line}.py"
                (self.folder / name).write_text(text)
                lines.append(f'sed -i "s/{_BROKER}/$KAFKA/" {name}; "$PYTHON" {name}')
            else:
                lines.append(text.replace(_BROKER, "$KAFKA"))
            if "rollstream broker start" in text:
                lines.append(f"export KAFKA=$(rollstream broker status --json | $PYTHON -c '{_ADDRESS}')")
        # Every worker and server is asked to end, and has to.
        lines += ["printf '\\n@@ 0\\n'", "for job in $(jobs -p); do kill $job; done", "wait"]
        return "\n".join(lines) + "\n"

    def _end(self, shell: subprocess.Popen[bytes]) -> None:
        """Leave nothing behind, however the session ended."""
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(_DRAIN_S)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        stop = [sys.executable, "-c", "from rollstream.cli import main; main()", "broker", "stop"]
        subprocess.run(stop, cwd=self.folder, env=self._env, capture_output=True, timeout=_DRAIN_S, check=False)


def _places(folder: Path) -> dict[str, str]:
    """Settings that keep a session inside its folder."""
    return {"ROLLSTREAM_BROKER__DATA_DIR": str(folder / "broker"), "ROLLSTREAM_CLAIMS__URL": str(folder / "claims")}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def plain(line: str) -> str:
    """A line with what differs from run to run taken out: numbers, ids, drawn lines, the letter that a script picks."""
    line = re.sub(r"\b(solo|run)-\d{8}-\d{6}-[0-9a-f]{4}\b", r"\1-ID", line)
    line = re.sub(r"\\boxed\{[A-Z]\}", r"\\boxed{X}", line)
    line = re.sub(r"[━─]+", "─", line)
    line = re.sub(r"\d[\d.,:]*", "0", line)
    return re.sub(r"\s+", " ", line).strip()


def missing(documented: str, printed: str) -> list[str]:
    """Documented lines that were not printed, in this order; `…` stands for any lines."""
    left = iter([plain(line) for line in printed.splitlines()])
    return [line for line in documented.splitlines() if line.strip() != "…" and not any(plain(line) == other for other in left)]


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


_ADDRESS = 'import json, sys; print(json.load(sys.stdin)["bootstrap_servers"])'

_UV = """#!/bin/sh
[ -z "${UV_LOG:-}" ] || echo "$*" >>"$UV_LOG"
case "$1" in
    --version) echo "uv 0.9.1" ;;
    run) shift 2; [ -n "${UV_LOG:-}" ] || exec ".venv/bin/$@" ;;
esac
"""

_KCAT = """
import asyncio, sys
from aiokafka import AIOKafkaProducer

options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
assert sys.argv[1] == "-P" and options.keys() == {"-b", "-t"}, sys.argv


async def main():
    producer = AIOKafkaProducer(bootstrap_servers=options["-b"])
    await producer.start()
    for line in sys.stdin.buffer:
        await producer.send_and_wait(options["-t"], line.rstrip(b"\\n"))
    await producer.stop()


asyncio.run(main())
"""
