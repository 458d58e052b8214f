"""The scripts at the root: how they find uv, what they run, what they say when it cannot be done."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ["quickstart", "check", ".ci/run", "scripts/bootstrap.sh", "scripts/sandbox.sh"]
PYTEST = "pytest -m not slow -n auto --dist worksteal --reruns 1 --tb native"
PARTS = ["lint", "types", "unit", "integration", "conformance", "chaos", "slow"]


@pytest.fixture
def machine(tmp_path):
    """A machine with a shell and nothing else, and the scripts on it. Programs are added to `bin` by the test."""

    class Machine:
        bin = tmp_path / "bin"
        project = tmp_path / "project"
        log = tmp_path / "log"

        def program(self, name, body):
            path = self.bin / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
            return path

        def uv(self, name="uv", version="uv 0.9.1 (abc 2026-01-01)", fails="-"):
            """A uv that writes down how it is called, and fails when its arguments begin with `fails`."""
            body = f'[ "$1" = --version ] && echo "{version}" && exit\necho "$*" >>"{self.log}"\n'
            return self.program(name, body + f'case "$*" in "{fails}"*) exit 1 ;; esac')

        def run(self, *command, **env):
            env = {"PATH": str(self.bin), "HOME": str(tmp_path)} | env
            return subprocess.run(command, cwd=self.project, env=env, capture_output=True, text=True, timeout=30, check=False)

        def calls(self):
            return self.log.read_text().splitlines() if self.log.exists() else []

    machine = Machine()
    machine.bin.mkdir()
    for tool in ("sh", "dirname"):
        (machine.bin / tool).symlink_to(shutil.which(tool))
    for script in SCRIPTS:
        target = machine.project / script
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / script, target)
    return machine


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_posix_shell(script):
    subprocess.run(["sh", "-n", ROOT / script], check=True, timeout=10)
    assert os.access(ROOT / script, os.X_OK) == (script != "scripts/bootstrap.sh")


def test_the_quickstart_runs_the_main_job_and_passes_arguments_on(machine):
    machine.uv()
    assert machine.run("./quickstart", "--limit", "2").returncode == 0
    sync, run = machine.calls()
    assert sync == "sync --frozen --no-dev --extra local --inexact"
    assert run.startswith("run --no-sync rollstream run --environment mcqa --environment example_single_tool_call")
    assert run.endswith("--output results/quickstart.jsonl --limit 2")


def test_check_runs_everything_and_the_tests_last(machine):
    machine.uv()
    assert machine.run("./check").returncode == 0
    assert machine.calls() == [
        "sync --frozen --all-extras",
        "run --no-sync ruff check .",
        "run --no-sync ruff format --check .",
        "run --no-sync mypy",
        f"run --no-sync {PYTEST}",
    ]


def test_check_keeps_compiled_code_with_the_environment(machine):
    log = f'echo "${{PYTHONDONTWRITEBYTECODE-unset}} $PYTHONPYCACHEPREFIX" >>"{machine.log}"'
    machine.program("uv", f'[ "$1" = --version ] && echo "uv 0.9.1" && exit\n{log}')
    assert machine.run("./check", "unit", PYTHONDONTWRITEBYTECODE="1").returncode == 0
    assert set(machine.calls()) == {f"unset {machine.project}/.venv/bytecode"}


@pytest.mark.parametrize("part", PARTS)
def test_check_runs_one_part(machine, part):
    machine.uv()
    assert machine.run("./check", part).returncode == 0
    rest = machine.calls()[1:]
    tools = {"lint": ["ruff", "ruff"], "types": ["mypy"]}.get(part, ["pytest"])
    assert [call.split()[2] for call in rest] == tools


def test_check_passes_options_to_pytest(machine):
    machine.uv()
    machine.run("./check", "unit", "-k", "claims")
    machine.run("./check", "-x")
    assert machine.calls()[1].endswith("-k claims")
    assert machine.calls()[-1] == f"run --no-sync {PYTEST} -x"


@pytest.mark.parametrize(
    "fails", ["run --no-sync ruff check", "run --no-sync ruff format", "run --no-sync mypy", "run --no-sync pytest"]
)
def test_check_fails_when_any_step_fails_and_goes_on_to_the_tests(machine, fails):
    machine.uv(fails=fails)
    assert machine.run("./check").returncode != 0
    assert len(machine.calls()) == 5


def test_check_stops_when_the_environment_cannot_be_made(machine):
    machine.uv(fails="sync")
    done = machine.run("./check")
    assert done.returncode != 0
    assert "could not be set up" in done.stderr
    assert len(machine.calls()) == 1


def test_check_goes_on_without_a_sandbox_and_says_what_is_used(machine):
    machine.uv()
    done = machine.run("./check", "unit")
    assert done.returncode == 0
    assert "needs root" in done.stderr
    assert "use Landlock" in done.stderr
    machine.program("bwrap", "exit 0")
    assert "Landlock" not in machine.run("./check", "unit").stderr


INSTALLERS = {
    "apt-get": "-qq -o DPkg::Lock::Timeout=60 install -y --no-install-recommends bubblewrap",
    "dnf": "install -y -q bubblewrap",
    "apk": "add --quiet bubblewrap",
}


@pytest.mark.parametrize("installer", INSTALLERS)
@pytest.mark.parametrize("root", [True, False])
def test_the_sandbox_script_installs_bubblewrap_with_what_the_machine_has(machine, installer, root):
    machine.program("id", f"echo {0 if root else 1000}")
    machine.program("sudo", '[ "$1" = -n ] && shift\nexec "$@"')
    machine.program("true", "exit 0")
    (machine.bin / "env").symlink_to(shutil.which("env"))
    bwrap = f"printf '#!/bin/sh\\n' >{machine.bin}/bwrap; /bin/chmod +x {machine.bin}/bwrap"
    machine.program(installer, f'echo "$*" >>"{machine.log}"\n{bwrap}')
    done = machine.run("scripts/sandbox.sh")
    assert done.returncode == 0, done.stderr
    assert machine.calls() == [INSTALLERS[installer]]
    assert machine.run("scripts/sandbox.sh").returncode == 0
    assert len(machine.calls()) == 1


def test_the_sandbox_script_fetches_lists_that_are_missing(machine):
    machine.program("id", "echo 0")
    (machine.bin / "env").symlink_to(shutil.which("env"))
    machine.program("apt-get", f'echo "$*" >>"{machine.log}"\n[ "$4" = update ]')
    done = machine.run("scripts/sandbox.sh")
    assert done.returncode == 1
    assert [call.split()[3] for call in machine.calls()] == ["install", "update", "install"]
    assert "Install it yourself" in done.stderr


def test_the_sandbox_script_on_a_machine_without_installers(machine):
    machine.program("id", "echo 0")
    done = machine.run("scripts/sandbox.sh")
    assert done.returncode == 1
    assert "no apt-get, dnf or apk" in done.stderr


def test_check_knows_its_parts_only(machine):
    machine.uv()
    done = machine.run("./check", "units")
    assert done.returncode == 2
    for part in PARTS:
        assert part in done.stderr
    assert machine.run("./check", "--help").returncode == 0


def test_ci_runs_check_and_nothing_else(machine):
    machine.program("check", "exit 7").rename(machine.project / "check")
    assert machine.run(".ci/run").returncode == 7


@pytest.mark.parametrize("version", ["uv 0.7.22", "uv 0.2.1 (abc)", "uv 0.1", "nonsense", ""])
def test_a_uv_that_is_too_old_or_does_not_answer_is_passed_over(machine, version):
    machine.uv(version=version)
    done = machine.run("./quickstart")
    assert machine.calls() == []
    assert "no Python found" in done.stderr


def test_a_shim_that_does_not_start_is_passed_over(machine):
    machine.program("uv", "echo 'command not found: uv' >&2; exit 127")
    (machine.project / ".uv-bootstrap" / "bin").mkdir(parents=True)
    machine.uv("own").rename(machine.project / ".uv-bootstrap" / "bin" / "uv")
    assert machine.run("./quickstart").returncode == 0
    assert len(machine.calls()) == 2


@pytest.mark.parametrize("version", ["0.8.0", "0.9.1 (abc)", "0.10.0", "0.13.9", "1.0.0"])
def test_newer_uvs_are_used(machine, version):
    machine.uv(version=f"uv {version}")
    assert machine.run("./quickstart").returncode == 0


PYTHON = """
[ "$1" = -c ] && exit 0
case "$*" in
    "-m venv"*) {venv} ;;
    "-m pip --version") {pip} ;;
    "-m pip install"*) echo "$*" >>"{log}"; {install} ;;
esac
"""


def test_without_uv_it_is_installed_into_a_private_venv(machine):
    own = machine.project / ".uv-bootstrap" / "bin"
    venv = f'/bin/mkdir -p "{own}" && /bin/cp "{machine.bin}/python3" "{own}/python"'
    install = f'/bin/cp "{machine.uv("later")}" "{own}/uv"'
    machine.program("python3", PYTHON.format(venv=venv, pip="exit 1", install=install, log=machine.log))
    done = machine.run("./quickstart")
    assert done.returncode == 0, done.stderr
    assert machine.calls()[0] == "-m pip install --quiet uv>=0.8,<1"
    assert "installing it from PyPI" in done.stderr


def test_without_the_venv_module_pip_installs_beside_the_system(machine):
    own = machine.project / ".uv-bootstrap" / "pip" / "bin"
    install = f'/bin/mkdir -p "{own}" && /bin/cp "{machine.uv("later")}" "{own}/uv"'
    machine.program("python3", PYTHON.format(venv="exit 1", pip="exit 0", install=install, log=machine.log))
    assert machine.run("./quickstart").returncode == 0
    assert machine.calls()[0] == "-m pip install --quiet --target .uv-bootstrap/pip uv>=0.8,<1"


def test_with_neither_it_says_what_to_install(machine):
    machine.program("python3", PYTHON.format(venv="exit 1", pip="exit 1", install="", log=machine.log))
    done = machine.run("./quickstart")
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_an_old_python_is_passed_over_for_a_newer_one(machine):
    machine.program("python3.13", "exit 1")
    machine.program("python3", f'[ "$1" = -c ] && exit 0\necho used >>"{machine.log}"; exit 1')
    machine.run("./quickstart")
    assert machine.calls()[0] == "used"
