"""Formal proofs in Lean 4: complete a theorem; the compiler decides."""
