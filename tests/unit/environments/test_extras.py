"""What an extra asks for, what of it is missing, and that only its environment is affected."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from environments import extras
from environments.extras import OURS, Extras, install_command
from environments.registry import Registry
from schemas.errors import DataError

ROOT = Path(__file__).parents[3]

METADATA = """\
Metadata-Version: 2.1
Name: shop
Version: 1.0
Provides-Extra: rare-things
Provides-Extra: usual
Requires-Dist: pydantic
Requires-Dist: no-such-package>=3; extra == 'rare-things'
Requires-Dist: pytest>=1; extra == 'rare-things'
Requires-Dist: only-elsewhere; extra == 'rare-things' and sys_platform == 'nowhere'
Requires-Dist: pytest>=1000; extra == 'usual'
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("shop")
def test_what_is_missing_is_named_with_the_command() -> None:
    expected = "it needs no-such-package>=3, not installed here: pip install 'shop[rare_things]'"
    assert Extras().lacking("shop", "rare_things") == expected


@pytest.mark.usefixtures("shop")
def test_a_version_that_is_too_old_is_missing() -> None:
    assert "pytest>=1000" in str(Extras().lacking("shop", "usual"))


@pytest.mark.usefixtures("shop")
def test_nothing_is_said_of_what_is_not_known() -> None:
    assert Extras().requirements("shop", "unheard-of") is None
    assert Extras().requirements("no-such-distribution", "x") is None
    assert Extras().lacking("shop", "unheard-of") is None
    assert Extras().lacking("shop", None) is None


def test_our_own_extras_are_named_as_their_environments_and_known() -> None:
    for entry in Registry.load().entries:
        extra = entry.manifest.extra
        if extra is not None and entry.distribution == OURS:
            assert extra == entry.manifest.name
            assert Extras().requirements(OURS, extra), (
                f"{extra}: not in pyproject.toml, or not installed (uv sync --all-extras)"
            )


def test_in_a_checkout_the_command_keeps_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: "/bin/uv")
    (tmp_path / "uv.lock").touch()
    assert install_command(OURS, "rare") == "uv sync --inexact --extra rare"
    assert install_command("shop", "rare") == "pip install 'shop[rare]'"


def test_without_a_uv_of_the_machine_it_is_that_of_the_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    (tmp_path / "uv.lock").touch()
    assert install_command(OURS, "rare") == "uv sync --inexact --extra rare"
    own = tmp_path / ".uv-bootstrap" / "bin" / "uv"
    own.parent.mkdir(parents=True)
    own.touch()
    assert install_command(OURS, "rare") == ".uv-bootstrap/bin/uv sync --inexact --extra rare"


def test_an_installed_package_is_completed_by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    assert install_command(OURS, "rare") == "pip install 'rollstream[rare]'"


def test_this_is_a_checkout() -> None:
    assert (extras.CHECKOUT / "uv.lock").is_file() == (ROOT / "uv.lock").is_file()


@pytest.fixture
def without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where rollstream is installed without extras."""
    version = metadata.version

    def of(name: str) -> str:
        if name == "numpy":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", of)


@pytest.mark.usefixtures("without_numpy")
def test_a_missing_package_costs_its_environment_and_no_other() -> None:
    registry = Registry.load()
    for name in ("code_gen", "math_with_code"):
        with pytest.raises(DataError) as caught:
            registry.binding(name, None)
        said = f"environment {name!r} cannot be used: it needs numpy>=2.2, not installed here: {install_command(OURS, name)}"
        assert str(caught.value) == said
    for name in ("mcqa", "workplace_assistant", "instruction_following"):
        assert registry.binding(name, None).name == name


HEAVY = ("numpy", "scipy", "pandas", "sympy", "nltk", "langdetect", "bs4", "re2", "dateutil", "huggingface_hub")


@pytest.mark.parametrize(
    "code",
    [
        "import rollstream",
        "from rollstream.cli import main; sys.argv = ['rollstream', '--help']; main()",
        "from rollstream.cli import main; sys.argv = ['rollstream', 'environment', 'new', '--help']; main()",
        "from rollstream.cli import main; sys.argv = ['rollstream', 'environments']; main()",
        "from environments.registry import Registry; Registry.load().entries",
        "from environments.registry import Registry; [Registry.load().entry_of(e.manifest.name) for e in Registry.load().entries]",
    ],
)
def test_commands_and_finding_environments_import_nothing_heavy(code: str) -> None:
    program = f"""\
import atexit, sys

@atexit.register
def heavy():
    found = sorted(m for m in {HEAVY} if m in sys.modules)
    print("heavy:", *found, file=sys.stderr)

{code}
"""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1] == "heavy:"


def test_loading_every_environment_class_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from environments.registry import Registry, environment_class\n"
        "for entry in Registry.load().entries:\n"
        "    before = set(sys.modules)\n"
        "    environment_class(entry)\n"
        f"    for name in sorted(set({HEAVY}) & (set(sys.modules) - before)):\n"
        "        print(entry.manifest.name, 'imports', name)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
