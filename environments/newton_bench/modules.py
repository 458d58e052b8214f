"""The twelve modules: what a law's parameters are called and mean, where they are drawn from, what an experiment takes.

Source: newton_bench.md. Invariant: the order of parameters and ranges is that of the law's signature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SYSTEMS = ("vanilla_equation", "simple_system", "complex_system")


@dataclass(frozen=True, slots=True)
class Range:
    """Where a parameter is drawn from when a law is scored; `log`: uniform in its logarithm."""

    low: float
    high: float
    log: bool = True


@dataclass(frozen=True, slots=True)
class Module:
    """One module. `parameters`: name in the law to its meaning. `silent`: true where the law gives `silence`.

    `arguments` of an experiment: True where it must be given. `spaced`: blanks are allowed inside a signature's brackets.
    """

    quantity: str
    parameters: Mapping[str, str]
    ranges: tuple[Range, ...]
    arguments: Mapping[str, bool]
    silent: str = "False"
    silence: float = math.nan
    spaced: bool = False


_MASSES = Range(1.0, 1e3)
_CHARGES = Range(0.1, 10.0)
_CURRENTS = Range(1e-3, 0.1)
_TEMPERATURES = Range(10.0, 1000.0)
_MOTION = {"initial_velocity": False, "duration": False, "time_step": False}

MODULES: Mapping[str, Module] = {
    "m0_gravity": Module(
        "force between two masses",
        {"mass1": "first mass", "mass2": "second mass", "distance": "distance between the masses"},
        (_MASSES, _MASSES, Range(1.0, 10.0)),
        {"mass1": True, "mass2": True, "distance": True, **_MOTION},
        silent="mass1 <= 0 or mass2 <= 0 or distance <= 0",
        silence=0.0,
    ),
    "m1_coulomb_force": Module(
        "force between two charges",
        {"q1": "first charge", "q2": "second charge", "distance": "distance between the charges"},
        (_CHARGES, _CHARGES, Range(0.1, 10.0)),
        {"q1": True, "q2": True, "distance": True, "m1": False, "m2": False, "duration": False, "time_step": False},
        silent="distance <= 0 or q1 == 0 or q2 == 0",
        silence=0.0,
    ),
    "m2_magnetic_force": Module(
        "force between two parallel wires, per length",
        {
            "current1": "current in the first wire",
            "current2": "current in the second wire",
            "distance": "distance of the wires",
        },
        (_CURRENTS, _CURRENTS, _CURRENTS),
        {"current1": True, "current2": True, "distance": True, "mass_wire": False, **_MOTION},
        silent="distance <= 0 or current1 == 0 or current2 == 0",
        silence=0.0,
    ),
    "m3_fourier_law": Module(
        "heat flow through a slab",
        {"k": "thermal conductivity", "A": "cross section", "delta_T": "temperature difference", "d": "thickness"},
        (Range(0.1, 10.0), Range(1e-4, 1e-2), _TEMPERATURES, Range(0.01, 1.0)),
        {"k": True, "A": True, "delta_T": True, "d": True, "num_points": False},
        silent="d <= 0 or delta_T <= 0",
        silence=0.0,
    ),
    "m4_snell_law": Module(
        "angle of refraction in degrees",
        {
            "n1": "refractive index of the first medium",
            "n2": "refractive index of the second medium",
            "angle1": "angle of incidence in degrees",
        },
        (Range(1.0, 1.5, log=False), Range(1.0, 1.5, log=False), Range(0.0, 90.0, log=False)),
        {
            "refractive_index_1": False,
            "refractive_index_2": False,
            "refractive_index_3": False,
            "incidence_angle": True,
            "speed_medium1": False,
            "speed_medium2": False,
        },
    ),
    "m5_radioactive_decay": Module(
        "number of nuclei that are left",
        {"N0": "number of nuclei at the start", "lambda_constant": "decay constant", "t": "time"},
        (Range(1.0, 100.0), Range(1e-3, 0.1), Range(0.01, 10.0)),
        {
            "N0": False,
            "lambda_constant": False,
            "t": True,
            "N0a": False,
            "N0b": False,
            "lambda_a": False,
            "lambda_b": False,
            "num_points": False,
        },
    ),
    "m6_underdamped_harmonic": Module(
        "angular frequency of a damped oscillator",
        {"k": "spring constant", "m": "mass", "b": "damping constant"},
        (Range(100.0, 1e4), Range(0.1, 10.0), Range(0.01, 1.0)),
        {"k_constant": True, "mass": True, "b_constant": True, "initial_amplitude": False},
    ),
    "m7_malus_law": Module(
        "intensity of light behind a polariser",
        {"I_0": "intensity before the polariser", "theta": "angle of the polariser in radians"},
        (Range(100.0, 2000.0), Range(1e-6, math.pi / 2, log=False)),
        {"I_0": True, "theta": True},
    ),
    "m8_sound_speed": Module(
        "speed of sound in a gas",
        {"gamma": "adiabatic index", "T": "temperature", "M": "molar mass"},
        (Range(1.3, 1.7, log=False), _TEMPERATURES, Range(1e-3, 0.1)),
        {
            "adiabatic_index": True,
            "temperature": True,
            "molar_mass": True,
            "distance": False,
            "driving_frequency": False,
            "tube_diameter": False,
        },
        spaced=True,
    ),
    "m9_hooke_law": Module(
        "energy stored in a spring",
        {"x": "displacement"},
        (Range(1e-3, 1.0),),
        {"x": True, "m": False},
        silent="x < 0",
        spaced=True,
    ),
    "m10_be_distribution": Module(
        "occupation number of a mode",
        {"omega": "angular frequency of the mode", "T": "temperature"},
        (Range(1e8, 1e10), _TEMPERATURES),
        {"omega": False, "temperature": True, "probe_frequency": False, "center_frequency": False, "bandwidth": False},
        silent="omega <= 0 or T <= 0",
        spaced=True,
    ),
    "m11_heat_transfer": Module(
        "heat that a body takes up",
        {"m": "mass", "c": "specific heat", "delta_T": "change of temperature"},
        (Range(1e-3, 1e3), Range(100.0, 1e4), _TEMPERATURES),
        {"m": True, "c": True, "delta_T": True},
        silent="m <= 0 or c <= 0 or delta_T <= 0",
        silence=0.0,
    ),
}
