"""One experiment: from a module's arguments to what the model reads.

Invariant: whatever goes wrong in a simulator is part of the answer; numbers that JSON does not have are null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from environments.newton_bench import matter, motion
from environments.newton_bench.laws import Law, law_of
from environments.newton_bench.modules import SYSTEMS
from environments.newton_bench.noise import Noise

Simulator = Callable[[Law, str, Mapping[str, Any], Noise], Any]

SIMULATORS: Mapping[str, Simulator] = {
    "m0_gravity": motion.gravity,
    "m1_coulomb_force": motion.charges,
    "m2_magnetic_force": motion.wires,
    "m3_fourier_law": matter.heat_flow,
    "m4_snell_law": matter.refraction,
    "m5_radioactive_decay": matter.decay,
    "m6_underdamped_harmonic": matter.oscillation,
    "m7_malus_law": matter.polarised,
    "m8_sound_speed": matter.sound,
    "m9_hooke_law": matter.spring,
    "m10_be_distribution": matter.modes,
    "m11_heat_transfer": matter.heating,
}


def perform(module: str, difficulty: str, version: str, system: str, given: Mapping[str, Any], noise: Noise) -> Any:
    """What the apparatus shows: a number, null or an object; an object with `error` when the experiment failed."""
    try:
        if system not in SYSTEMS:
            raise ValueError(f"there is no system {system!r} (there are: {', '.join(SYSTEMS)})")
        return _plain(SIMULATORS[module](law_of(module, difficulty, version), system, given, noise))
    except Exception as error:  # noqa: BLE001 - the model reads why its experiment failed
        return {"error": str(error)}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
