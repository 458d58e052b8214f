"""The other systems: heat, light, decay, oscillation, sound, springs, modes (newton_bench.md, "Experiments").

Invariant: what is asked for is bounded (`MAX_POINTS`), and a quantity that does not exist is said as the model expects it:
`invalid`, `nan` or null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from environments.newton_bench.laws import Law
from environments.newton_bench.noise import ANGLE, OCCUPATION, ORDINARY, RADIANCE, RATIO, Noise

MAX_POINTS = 10_000
"""Of a profile. Nobody reads more, and a worker's memory is not the model's to ask for."""

LIGHT = 3e8
LOSS = (0.18, 0.22)

Given = Mapping[str, Any]


def heat_flow(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m3: heat flow; the temperature along a slab; the flux along a fin."""
    import numpy as np

    k, area, delta, depth = given["k"], given["A"], given["delta_T"], given["d"]
    flow = law(k, area, delta, depth)
    if system == "vanilla_equation":
        return noise.on(flow, ORDINARY)
    x = np.linspace(0, depth, _points(given))
    if system == "simple_system":
        return {"x": _exact(x), "T": _exact(noise.on_all(delta - flow * x / (k * area), ORDINARY))}
    temperature = delta * np.exp(-x * flow / (k * area * delta))
    return {"x": _exact(x), "heat_flux": _exact(noise.on_all(-k * np.gradient(temperature, x), ORDINARY))}


def refraction(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m4: an angle behind one surface, by indices or by speeds; behind two surfaces."""
    angle = given["incidence_angle"] % 180
    angle = min(angle, 180 - angle)
    if system == "vanilla_equation":
        return noise.on(law(given["refractive_index_1"], given["refractive_index_2"], angle), ANGLE)
    if system == "simple_system":
        found = law(LIGHT / given["speed_medium1"], LIGHT / given["speed_medium2"], angle)
        return {"refraction_angle": _valid(noise.on(found, ANGLE))}
    middle = law(given["refractive_index_1"], given["refractive_index_2"], angle)
    found = law(given["refractive_index_2"], given["refractive_index_3"], middle)
    return {"final_refraction_angle": _valid(noise.on(found, ANGLE))}


def decay(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m5: nuclei that are left; the activity that a detector shows; the ratio of two species."""
    import numpy as np

    if system == "vanilla_equation":
        return noise.on(law(given["N0"], given["lambda_constant"], given["t"]), ORDINARY)
    times = [float(t) for t in np.linspace(0, given["t"], _points(given))]
    if system == "simple_system":
        shown = [0.7 * law(given["N0"], given["lambda_constant"], t) for t in times]
        return {"time": _exact(times), "measured_activity": _exact(noise.on_all(shown, ORDINARY))}
    pairs = [(law(given["N0a"], given["lambda_a"], t), law(given["N0b"], given["lambda_b"], t)) for t in times]
    ratios = [a / b if abs(b) >= 1e-10 else math.nan for a, b in pairs]  # noqa: PLR2004 - the page's bound
    noisy = [noise.on(r, RATIO) if math.isfinite(r) else math.nan for r in ratios]
    return {"time": _exact(times), "ratio": _exact(noisy)}


def oscillation(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m6: an angular frequency; the period; the amplitude over two periods."""
    import numpy as np

    omega = law(given["k_constant"], given["mass"], given["b_constant"])
    if system == "vanilla_equation":
        return noise.on(omega, ORDINARY)
    exists = math.isfinite(omega) and omega != 0
    if system == "simple_system":
        return {"period": _valid(noise.on(2 * math.pi / omega, ORDINARY)) if exists else "invalid"}
    if not exists:
        return {"time": [], "amplitude": []}
    times = np.linspace(0, 2 * (2 * math.pi / omega), 20)
    amplitude = given["initial_amplitude"] * np.exp(-3 * times) * np.cos(omega * times)
    return {"time": _exact(times), "amplitude": _exact(noise.on_all(amplitude, ORDINARY))}


def polarised(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m7: an intensity behind one polariser; its ratio to the light before; what two polarisers change."""
    before, theta = given["I_0"], given["theta"]
    if system == "vanilla_equation":
        return noise.on(law(before, theta), ORDINARY)
    if before <= 0 or theta <= 0 or theta > math.pi / 2:
        return None
    behind = law(before, theta)
    if system == "simple_system":
        return noise.on(behind / before, RATIO)
    return noise.on(law(behind, theta) - before, ORDINARY)


def sound(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m8: a speed; the time of an echo; the first two lengths at which a tube resounds."""
    speed = law(given["adiabatic_index"], given["temperature"], given["molar_mass"])
    if system == "vanilla_equation":
        return noise.on(speed, ORDINARY)
    exists = math.isfinite(speed) and speed > 0
    if system == "simple_system":
        return {"time": _valid(noise.on(2 * given["distance"] / speed, ORDINARY)) if exists else "invalid"}
    quarter, end = speed / given["driving_frequency"] / 4, 0.3 * given["tube_diameter"]
    lengths = {"first": quarter - end, "second": 3 * quarter - end}
    return {
        f"{name}_resonance_length": _valid(noise.on(max(length, 0.0), ORDINARY)) if exists else "invalid"
        for name, length in lengths.items()
    }


def spring(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m9: a stored energy; energy with friction; the speed behind a damper."""
    x, mass = given["x"], given["m"]
    stored = law(x)
    if system == "vanilla_equation":
        return noise.on(stored, ORDINARY)
    if mass <= 0:
        return None
    speed = math.sqrt(2 * stored / mass) if stored >= 0 else math.nan
    if system == "simple_system":
        return noise.on(0.5 * mass * speed**2 + 0.2 * x * speed**2, ORDINARY)
    return noise.on(math.exp(-x / 0.02) * speed, ORDINARY)


def modes(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m10: an occupation number; radiance at a frequency; power in a band."""
    temperature = given["temperature"]
    if system == "vanilla_equation":
        return noise.on(law(given["omega"], temperature), OCCUPATION)
    if system == "simple_system":
        at = given["probe_frequency"]
        return {"spectral_radiance": f"{noise.on(law(at, temperature) * at**3, RADIANCE):.12e}"}
    from scipy.integrate import quad  # type: ignore[import-untyped]

    center, half = given["center_frequency"], given["bandwidth"] / 2
    power, _ = quad(lambda w: law(w, temperature) * w**3, center - half, center + half, limit=100)
    return {"total_power": f"{noise.on(power, RADIANCE):.6e}"}


def heating(law: Law, system: str, given: Given, noise: Noise) -> Any:
    """m11: heat taken up; the power that a body gives off, in three parts; how many lamps its heat would feed."""
    mass, specific, delta = given["m"], given["c"], given["delta_T"]
    heat = law(mass, specific, delta)
    if system == "vanilla_equation":
        return noise.on(heat, ORDINARY)
    uniform, seconds = noise.rng.uniform, mass * specific / 100
    if system == "simple_system":
        power = heat / seconds * (1 - uniform(*LOSS))
        parts = [uniform(0.1, 0.8) for _ in range(3)]
        shares = zip(("P_cond", "P_conv", "P_rad"), parts, strict=True)
        return {name: noise.on(power * part / sum(parts), ORDINARY) for name, part in shares}
    other = law(mass, specific * uniform(0.7, 1.2), delta)
    power = noise.on(abs(heat - other) / seconds * (1 - uniform(*LOSS)), ORDINARY)
    return float(int(power)) if math.isfinite(power) else 0.0


def _points(given: Given) -> Any:
    count = given["num_points"]
    if count is not None and count > MAX_POINTS:
        raise ValueError(f"num_points may be {MAX_POINTS} at most")
    return count


def _exact(values: Iterable[float]) -> list[str]:
    return [f"{value:.6e}" for value in values]


def _valid(value: float) -> str:
    return f"{value:.6e}" if math.isfinite(value) else "invalid"
