"""The files of a new environment: what they are called and what stands in them.

Owns how a template becomes an environment. Invariant: only names that `checked_name` has passed are put into files, so what is
generated is valid Python, YAML and TOML.
"""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rollstream.scaffold.kinds import TEMPLATES, template_folder
from schemas import jsontext

NAME = "my_environment"
CLASS = "MyEnvironment"
PACKAGE = "my_package"

MAX_NAME = 60
"""Characters. Names become columns, metric keys and file names; the longest of the reference has 45."""

_VALID = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_RESERVED = frozenset({"agents", "common", "environments", "rollstream", "schemas", "services", "tests", "data"})
_DATA = ("example.jsonl", "fixtures.jsonl")


def checked_name(name: str, taken: Iterable[str] = ()) -> str:
    """`name`; raises `ValueError` that says what is wrong with it.

    It becomes a module, a class and an agent's name, so: lower-case words joined by underscores, no keyword, no module of
    Python or of this project, no name that another environment answers to.
    """
    if not _VALID.fullmatch(name) or len(name) > MAX_NAME:
        raise ValueError(
            f"{name[:MAX_NAME]!r} is no name for an environment: lower-case words joined by underscores, such as unit_prices; "
            f"at most {MAX_NAME} characters"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in _RESERVED or name in sys.stdlib_module_names:
        raise ValueError(f"{name!r} is a word of Python or of this project; choose another name")
    if name in taken or f"{name}_simple_agent" in taken:
        raise ValueError(f"there is an environment that answers to {name!r} already; choose another name")
    return name


def check_unused(name: str) -> None:
    """Raises `ValueError` when `import name` finds an installed package, which would hide the new one or be hidden by it."""
    found = find_spec(name)
    if found is not None and found.origin is not None:  # a folder without __init__ is found wherever Python looks
        raise ValueError(f"{name!r} is an installed package ({found.origin}); choose another name")


def files_inside(name: str, kind: str) -> dict[Path, bytes]:
    """The files of an environment of this project, relative to the checkout."""
    return _placed(_filled(name, kind, f"environments.{name}"), Path("environments") / name, Path("tests/unit/environments"))


def files_outside(name: str, kind: str) -> dict[Path, bytes]:
    """The files of a package that registers its environment by entry point, relative to the package's folder."""
    found = _placed(_filled(name, kind, name), Path(name), Path("tests"))
    project = (TEMPLATES / "pyproject.toml").read_text("utf-8").replace(">=0.0.0", f">={metadata.version('rollstream')}")
    return {Path("pyproject.toml"): _renamed(project, name, name).encode(), **found}


def _filled(name: str, kind: str, package: str) -> dict[str, bytes]:
    """The template's files by name, with the new names in them."""
    sources = sorted(p for p in template_folder(kind).iterdir() if p.is_file())
    found = {_renamed(p.name, name, package): _renamed(p.read_text("utf-8"), name, package) for p in sources}
    found["example.jsonl"] = _addressed(found["example.jsonl"], f"{name}_simple_agent")
    return {file: text.encode() for file, text in found.items()}


def _placed(files: Mapping[str, bytes], folder: Path, tests: Path) -> dict[Path, bytes]:
    return {_place(file, folder, tests): content for file, content in files.items()}


def _place(file: str, folder: Path, tests: Path) -> Path:
    if file in _DATA:
        return folder / "data" / file
    return tests / file if file.startswith("test_") else folder / file


def _renamed(text: str, name: str, package: str) -> str:
    camel = "".join(word.capitalize() for word in name.split("_"))
    return text.replace(NAME, name).replace(CLASS, camel).replace(PACKAGE, package)


def _addressed(rows: str, agent: str) -> str:
    """Rows that name their agent, as a dataset's do."""
    ref = {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    return "".join(f"{jsontext.dumps({**jsontext.loads(line), **ref}).decode()}\n" for line in rows.splitlines())
