"""Arithmetic as a policy writes it.

Owns the grammar of aviary.md, "GSM8k": numbers, `+ - * / // % **`, signs, and calls of five functions. Invariant: nothing else
of Python is reached, and the time is bounded: expressions, exponents and integers have a size beyond which they are refused.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_CHARS = 10_000
"""Longer expressions are refused; a page of arithmetic has a few hundred characters."""

MAX_BITS = 1 << 16
"""Larger integers are refused, in between too: Python cannot print more than 4,300 digits (14,284 bits) anyway, and ten
thousand characters of products of such numbers take well under a second."""

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"abs": abs, "round": round, "min": min, "max": max, "sum": sum}


def calculate(expr: Any) -> str:
    """The value of `expr` as text: whole numbers as integers, others as Python writes them.

    Raises whatever is wrong with the expression; `repr` of the error is what the policy reads.
    """
    result = _value(expr.strip())
    return str(int(result) if int(result) == result else result)


def _value(text: str) -> Any:
    if len(text) > MAX_CHARS:
        raise ValueError(f"Invalid mathematical expression: more than {MAX_CHARS:,} characters")
    try:
        return _evaluate(ast.parse(text, mode="eval").body)
    except ZeroDivisionError:
        raise ValueError("Division by zero is not allowed") from None
    except Exception as e:  # noqa: BLE001 - whatever Python's parser or arithmetic says is told to the policy
        raise ValueError(f"Invalid mathematical expression: {e}") from None


def _evaluate(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _combined(op, _evaluate(left), _evaluate(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            return _SIGNS[type(op)](_evaluate(operand))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_evaluate(a) for a in args)))
        case ast.Call(func=ast.Name(id=name)):
            raise ValueError(f"Unsupported function call: {name}")
        case ast.Call():
            raise ValueError("Only simple function calls are supported")
    raise ValueError(f"Unsupported AST node type: {type(node)}")


def _combined(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        bits = max(abs(left).bit_length(), 1) * abs(right) if abs(left) > 1 else 1
        if bits > MAX_BITS:
            raise ValueError("the power is too large")
    return _bounded(_OPERATORS[type(op)](left, right))


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("the number is too large")
    return value
