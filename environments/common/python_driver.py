"""The Python interpreter behind `execute_python` (math_with_code.md, newton_bench.md): a session's driver, run in the sandbox.

`python_session` sends this file there as text and adds the line that makes `execute`; it imports nothing of the project.
Invariant: a call answers with five keys (`success`, `stdout`, `stderr`, `error_message`, `result`), whatever the code does,
unless it ends the process or keeps the interpreter past the alarm.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import io
import random
import re
import signal
import sys
import traceback
import zlib
from typing import Any

NOT_EVALUATED = ("print", "import", "from", "def", "class", "if", "for", "while", "try", "with")
"""A last line that begins so is not evaluated again; plain prefixes, so `format_x` is none either."""

FINDER = "__find_name__"


class TimedOut(Exception):
    """The alarm."""


class Kept(io.TextIOBase):
    """Text written to it, `limit` characters: the first and the last half."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = io.StringIO()
        self._room = self._half
        self._tail: list[str] = []
        self._tail_size = self._left_out = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        head = text[: self._room]
        self._head.write(head)
        self._room -= len(head)
        rest = text[len(head) :]
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            if self._tail_size > 2 * self._half:
                self._cut()
        return len(text)

    def value(self) -> str:
        self._cut()
        gap = f"\n[{self._left_out} characters left out]\n" if self._left_out else ""
        return self._head.getvalue() + gap + "".join(self._tail)

    def _cut(self) -> None:
        text = "".join(self._tail)
        self._left_out += max(0, len(text) - self._half)
        self._tail = [text[-self._half :]] if text else []
        self._tail_size = len(self._tail[0]) if self._tail else 0


class Interpreter:
    """One rollout's interpreter: its two dictionaries and its rules."""

    def __init__(
        self,
        rollout: str,
        *,
        names: list[str],
        modules: dict[str, str],
        limit_s: float,
        output: int,
        tracebacks: bool,
        refused: list[str],
    ) -> None:
        own = {name: getattr(builtins, name) for name in names}
        self._builtins: dict[str, Any] = {**own, "__import__": builtins.__import__}
        self._globals: dict[str, Any] = {"__builtins__": self._builtins, FINDER: self._find}
        self._locals: dict[str, Any] = {}
        self._modules = dict(modules)
        self._limit_s, self._output = limit_s, output
        self._tracebacks, self._refused = tracebacks, refused
        self._seed = rollout
        random.seed(rollout)  # a rollout that is continued on another worker draws the same numbers again
        signal.signal(signal.SIGALRM, _alarm)

    def execute(self, code: str) -> dict[str, Any]:
        """Run `code`; the answer as the model reads it."""
        refusal = self._refusal(code) if self._refused else None
        if refusal is not None:
            return failed(refusal)
        out, err = Kept(self._output), Kept(self._output)
        try:
            self._bind(code)  # not on the code's time
            signal.setitimer(signal.ITIMER_REAL, self._limit_s)
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    exec(self._compiled(code, "exec"), self._globals, self._locals)  # noqa: S102 - this is what the sandbox is for
                    result = self._last(code)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except BaseException as error:  # noqa: BLE001 - whatever the code raises is its answer, an exit too
            return failed(self._shorten(self._message(error)))
        stdout, stderr = out.value(), err.value()
        return {"success": True, "stdout": stdout, "stderr": stderr, "error_message": None, "result": result}

    def _refusal(self, code: str) -> str | None:
        try:
            ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"Syntax error: {error}"
        found = next((p for p in self._refused if re.search(p, code, re.IGNORECASE)), None)
        return None if found is None else f"Code contains potentially dangerous operation: {found}"

    def _bind(self, code: str) -> None:
        """Import what the code may mean by its name; pandas alone costs as much as most calculations."""
        for name in [n for n in self._modules if re.search(rf"\b{n}\b", code)]:
            self._globals[name] = importlib.import_module(self._modules.pop(name))
            if "numpy" in sys.modules and self._seed:
                sys.modules["numpy"].random.seed(zlib.crc32(self._seed.encode()))
                self._seed = ""

    def _compiled(self, code: str, mode: str) -> Any:
        if sys.version_info >= (3, 12):
            return compile(code, "<string>", mode, dont_inherit=True)
        tree = compile(code, "<string>", mode, ast.PyCF_ONLY_AST, dont_inherit=True)
        try:
            tree = ast.fix_missing_locations(Inlining().visit(tree))
        except RecursionError:  # an expression of a thousand terms
            return compile(code, "<string>", mode, dont_inherit=True)
        return compile(tree, "<string>", mode, dont_inherit=True)

    def _last(self, code: str) -> str | None:
        line = code.strip().split("\n")[-1].strip()
        if line.startswith(NOT_EVALUATED):
            return None
        try:
            return self._shorten(str(eval(self._compiled(line, "eval"), self._globals, self._locals)))  # noqa: S307 - as above
        except TimedOut:
            raise
        except BaseException:  # noqa: BLE001 - then there is no result
            return None

    def _message(self, error: BaseException) -> str:
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - a class of the code's own
            text = type(error).__name__
        if not self._tracebacks:
            return text
        inside = error.__traceback__ and error.__traceback__.tb_next  # the first frame is ours
        return f"{text}\nTraceback:\n{''.join(traceback.format_exception(type(error), error, inside))}"

    def _shorten(self, text: str) -> str:
        kept = Kept(self._output)
        kept.write(text)
        return kept.value()

    def _find(self, name: str) -> Any:
        for scope in (self._locals, self._globals, self._builtins):
            if name in scope:
                return scope[name]
        raise NameError(f"name {name!r} is not defined")


class Inlining(ast.NodeTransformer):
    """Lets comprehensions at the top level see top-level names, as they do from Python 3.12 on (PEP 709).

    Before, they are functions, for which names in a separate locals dictionary do not exist. Generator expressions and lambdas
    are functions in every version.
    """

    def __init__(self) -> None:
        self._bound: frozenset[str] | None = None  # names that the comprehensions around bind; None outside of any

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if self._bound is None or node.id in self._bound or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(ast.Name(FINDER, ast.Load()), [ast.Constant(node.id)], [])
        return ast.copy_location(call, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [self.visit(n) for n in node.decorator_list]
        self._defaults(node.args)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node.args)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        node.generators[0].iter = self.visit(node.generators[0].iter)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> ast.AST:
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        outer, self._bound = self._bound, (self._bound or frozenset()) | _bound_in(node)
        for generator in node.generators:
            if generator is not first:
                generator.iter = self.visit(generator.iter)
            generator.ifs = [self.visit(n) for n in generator.ifs]
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                setattr(node, name, self.visit(getattr(node, name)))
        self._bound = outer
        return node

    visit_SetComp = visit_DictComp = visit_ListComp  # noqa: N815 - ast's names

    def _defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(n) for n in arguments.defaults]
        arguments.kw_defaults = [n and self.visit(n) for n in arguments.kw_defaults]


def _bound_in(node: ast.ListComp | ast.SetComp | ast.DictComp) -> frozenset[str]:
    targets = [g.target for g in node.generators] + [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
    return frozenset(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))


def failed(text: str) -> dict[str, Any]:
    """The answer to code that did not run through: nothing of its output is kept."""
    return {"success": False, "stdout": "", "stderr": "", "error_message": text, "result": None}


def _alarm(_number: int, _frame: object) -> None:
    raise TimedOut("code timed-out")
