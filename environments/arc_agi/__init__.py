"""ARC-AGI: infer a transformation of grids from examples."""
