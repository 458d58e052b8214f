"""Bodies that move under a hidden force: the systems of gravity, charges and wires (newton_bench.md, "Experiments").

Invariant: at most `SAMPLES` steps are computed, however long an experiment is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from environments.newton_bench.laws import Law
from environments.newton_bench.noise import FORCE, ORDINARY, Noise

SAMPLES = 20
PERIOD_S = 0.02
"""Of the alternating current: 50 Hz."""

Given = Mapping[str, Any]
Vector = tuple[float, ...]


def gravity(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m0: a force; a body that falls along a line; one that moves in a plane."""
    mass1, mass2, distance = given["mass1"], given["mass2"], given["distance"]
    if system == "vanilla_equation":
        return noise.on(law(mass1, mass2, distance), FORCE)
    count, step = _steps(given)
    if count <= 0:
        return {"time": [], "position": [], "velocity": []}
    if system == "simple_system":
        line = verlet((distance,), (given["initial_velocity"],), count, step, lambda x, _: (_fall(law, mass1, mass2, x[0]),))
        return _linear(list(line), step, noise)

    def pull(at: Vector, _: float) -> Vector:
        radius = math.hypot(*at)
        strength = law(mass1, mass2, radius) / mass2
        return tuple(-strength * x / radius if radius else 0.0 for x in at)

    orbit = list(verlet((distance, 0.0), (0.0, given["initial_velocity"]), count, step, pull))
    return {
        "time": _times(count, step),
        "position": [_exact(noise.on_all(at, ORDINARY)) for at, _ in orbit],
        "velocity": [_exact(noise.on_all(speed, ORDINARY)) for _, speed in orbit],
    }


def charges(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m1: a force; the speed, or the kinetic energy, of a charge that is driven off while both charges decay."""
    q1, q2, distance = given["q1"], given["q2"], given["distance"]
    if system == "vanilla_equation":
        return noise.on(law(q1, q2, distance), FORCE)
    count, step = _steps(given)
    if count <= 0:
        names = ("time", "position", "velocity", *(() if system == "simple_system" else ("kinetic_energy",)))
        return {name: [] for name in names}
    speeds = _driven_off(law, given, count, step)
    time = _times(count, step)
    if system == "simple_system":
        return {"time": time, "velocity": _exact(noise.on_all(speeds, ORDINARY))}
    energies = [0.5 * given["m2"] * v**2 for v in speeds]
    return {"time": time, "kinetic_energy": _exact(noise.on_all(energies, ORDINARY))}


def wires(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m2: a force; a wire that moves under direct current, or for one period of alternating current."""
    current1, current2, distance = given["current1"], given["current2"], given["distance"]
    if system == "vanilla_equation":
        return noise.on(law(abs(current1), abs(current2), distance), FORCE)
    mass = given["mass_wire"]
    start, speed = (distance,), (given["initial_velocity"],)
    if system == "complex_system":
        step = PERIOD_S / (SAMPLES - 1)

        def alternating(x: Vector, t: float) -> Vector:
            return (_push(law, current1 * math.sin(2 * math.pi * 50 * t), current2, x[0], mass),)

        path = list(verlet(start, speed, SAMPLES, step, alternating))
        return {**_linear(path, step, noise), "time": [f"{i * step:.6e}" for i in range(SAMPLES)]}
    count, step = _steps(given)
    if count <= 0:
        return {"time": [], "position": [], "velocity": []}
    path = list(verlet(start, speed, count, step, lambda x, _: (_push(law, current1, current2, x[0], mass),)))
    return _linear(path, step, noise)


def verlet(
    start: Vector, speed: Vector, count: int, step: float, force: Callable[[Vector, float], Vector]
) -> Iterator[tuple[Vector, Vector]]:
    """Position and velocity at `count` times, by velocity Verlet; a step uses `force` at its beginning's time twice."""
    at, moving = start, speed
    for i in range(count):
        yield at, moving
        before = force(at, i * step)
        at = tuple(x + v * step + 0.5 * a * step**2 for x, v, a in zip(at, moving, before, strict=True))
        after = force(at, i * step)
        moving = tuple(v + 0.5 * (a + b) * step for v, a, b in zip(moving, before, after, strict=True))


def _steps(given: Given) -> tuple[int, float]:
    steps = int(given["duration"] / given["time_step"])
    return min(steps, SAMPLES), given["time_step"]


def _fall(law: Law, mass1: float, mass2: float, x: float) -> float:
    return -law(mass1, mass2, abs(x)) * ((x > 0) - (x < 0)) / mass2


def _push(law: Law, current1: float, current2: float, x: float, mass: float) -> float:
    if mass == 0 or x == 0:
        return 0.0
    force = law(abs(current1), abs(current2), abs(x)) / mass
    return -force if current1 * current2 > 0 else force


def _driven_off(law: Law, given: Given, count: int, step: float) -> list[float]:
    x, v, speeds = given["distance"], 0.0, [0.0]
    for i in range(1, count):
        q1, q2 = given["q1"] * math.exp(-i * step / 10), given["q2"] * math.exp(-i * step / 5)
        a = law(abs(q1), abs(q2), abs(x)) / given["m2"]
        v += (a if q1 * q2 > 0 else -a) * step
        x += v * step
        speeds.append(v)
    return speeds


def _linear(path: Sequence[tuple[Vector, Vector]], step: float, noise: Noise) -> dict[str, list[str]]:
    return {
        "time": _times(len(path), step),
        "position": _exact(noise.on_all((at[0] for at, _ in path), ORDINARY)),
        "velocity": _exact(noise.on_all((speed[0] for _, speed in path), ORDINARY)),
    }


def _times(count: int, step: float) -> list[str]:
    return [f"{i * step:.3e}" for i in range(count)]


def _exact(values: Sequence[float]) -> list[str]:
    return [f"{value:.6e}" for value in values]
