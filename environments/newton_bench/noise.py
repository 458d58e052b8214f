"""Measurement noise (newton_bench.md, "Noise"). Invariant: without noise every number is the simulator's own, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

FORCE = 1e-12
ORDINARY = 1e-9
"""Floor of most quantities: positions, velocities, energies, periods, temperatures, …"""
ANGLE = 1e-6
RATIO = 1e-12
RADIANCE = 1e-12
OCCUPATION = 1e-18


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian, of the relative standard deviation `level`, at least the floor of the quantity."""

    level: float
    rng: random.Random

    def on(self, value: float, floor: float) -> float:
        """`value` as it was measured."""
        if not self.level:
            return value
        return value + self.rng.gauss(0.0, max(abs(value * self.level), floor))

    def on_all(self, values: Iterable[float], floor: float) -> list[float]:
        """Each of `values` as it was measured."""
        return [self.on(value, floor) for value in values]
