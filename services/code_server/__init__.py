"""The client of a code-execution server that somebody else runs (Lean, see math_formal_lean)."""
