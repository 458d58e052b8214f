"""How a program's source becomes a module that can be run for each test (code_gen.md, "Execution").

Invariant: source that does not parse is passed on unchanged, so that compiling it reports the error.
"""

from __future__ import annotations

import ast

from environments.code_gen.checking.guarding import RECURSION

FUNCTION = "wrapped_function"
"""Name of the function that a program for stdin becomes."""

_STARRED = """
string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json builtins typing
"""
_NOT_PLAIN = ("builtins", "typing")

IMPORTED = tuple(_STARRED.split())
"""The modules of `PREAMBLE`."""

PREAMBLE = "\n".join(
    [
        *(f"from {name} import *" for name in _STARRED.split()),
        *(f"import {name}" for name in _STARRED.split() if name not in _NOT_PLAIN),
        f"sys.setrecursionlimit({RECURSION})",
        "",
    ]
)
"""What every program finds imported."""


def called(source: str) -> str:
    """A module for tests that call a function."""
    return PREAMBLE + source


def run_on_stdin(source: str) -> str:
    """A module whose `FUNCTION` runs the program once: imports at module level, all else in the function."""
    try:
        return _as_function(_without_guard(ast.parse(source)))
    except Exception:  # noqa: BLE001 - syntax errors, null bytes, nesting too deep: compiling the source says it
        return source


def _without_guard(tree: ast.Module) -> ast.Module:
    """The tree with a last `if __name__ == '__main__'` replaced by its body."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'":
        return ast.Module([*tree.body[:-1], *last.body], [])
    return tree


def _as_function(tree: ast.Module) -> str:
    imports: list[ast.stmt] = [s for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom)]
    rest = [s for s in tree.body if not isinstance(s, ast.Import | ast.ImportFrom)]
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.FunctionDef(name=FUNCTION, args=arguments, body=rest, decorator_list=[], lineno=1)
    return f"{PREAMBLE}\n{ast.unparse(ast.Module(imports, []))}\n{ast.unparse(function)}"
