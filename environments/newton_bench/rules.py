r"""What the Python tool of newton_bench allows (newton_bench.md, "Tools").

The refused patterns are no protection, which is the sandbox's: they are what policies have been told and trained with.
"""

from __future__ import annotations

BUILTINS = (
    "abs", "all", "any", "ascii", "bin", "bool", "callable", "chr", "complex", "dict", "divmod", "enumerate", "filter", "float",
    "format", "frozenset", "hash", "hex", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next",
    "object", "oct", "ord", "pow", "print", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum",
    "tuple", "type", "zip",
    "Exception", "ArithmeticError", "AssertionError", "AttributeError", "BufferError", "EOFError", "ImportError", "IndexError",
    "KeyError", "MemoryError", "NameError", "NotImplementedError", "OSError", "OverflowError", "ReferenceError", "RuntimeError",
    "StopIteration", "SyntaxError", "SystemError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip

REFUSED = (
    r"import\s+os", r"import\s+sys", r"import\s+subprocess", r"__import__", r"eval\(", r"exec\(", r"open\(", r"file\(",
    r"input\(", r"raw_input\(", r"compile\(", r"globals\(", r"locals\(",
)  # fmt: skip
"""Searched for anywhere, in any case of letters, in this order; the first that is found is told."""
