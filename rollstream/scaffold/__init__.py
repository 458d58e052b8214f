"""New environments from templates (`rollstream environment new`).

Each folder under `templates/` is a working environment with tests: they are formatted, linted and type-checked like all other
code here, and generating one only replaces three names. Invariant: what is generated runs and passes its tests unchanged.
"""
