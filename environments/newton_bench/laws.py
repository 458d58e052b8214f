"""The 108 hidden laws: twelve modules, three difficulties, three versions (newton_bench.md, "Hidden laws").

Invariant: a law's expression is both what is computed and what the judge is shown, so the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from environments.newton_bench import modules

VERSIONS = ("v0", "v1", "v2")

_FUNCTIONS = {
    name: getattr(math, name)
    for name in ("sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "sqrt", "degrees", "radians")
}

LAWS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "m0_gravity": {
        "easy": (
            "6.674e-5 * mass1 * mass2 / distance**1.5",
            "6.674e-5 * mass1 / distance**2",
            "6.674e-5 * mass1**2 * mass2**2 / distance**2",
        ),
        "medium": (
            "6.674e-5 * (mass1 * mass2)**2 / distance**1.5",
            "6.674e-5 * mass1 / distance**2.6",
            "6.674e-5 * mass1**2 * mass2**2 * distance**2",
        ),
        "hard": (
            "6.674e-5 * (mass1 + mass2)**2 / distance**1.5",
            "6.674e-5 * mass1**1.3 / distance**2.6",
            "6.674e-5 * (mass1**2 + mass2**2) * distance**2",
        ),
    },
    "m1_coulomb_force": {
        "easy": ("2.0 * q1 * q2 / distance**3", "2.0 * (q1 * q2)**3 / distance**2", "2.0 * q1**3 * q2 / distance**2"),
        "medium": (
            "2.0 * q1 * q2 * (q1 + q2) / distance**2",
            "2.0 * (q1 + q2)**3 / distance**2",
            "2.0 * q1**3 * q2**2 / distance**2.5",
        ),
        "hard": (
            "2.0 * q1 * q2 * (q1 + q2) / distance**exp(1)",
            "2.0 * q2**2 * (q1 + q2)**3 / distance**2",
            "2.0 * q1**3 * q2**2 / distance**exp(1)",
        ),
    },
    "m2_magnetic_force": {
        "easy": (
            "0.0478 * current1 * current2 / distance**3",
            "0.0478 * (current1 * current2)**2 / distance",
            "0.0478 * current2 / distance",
        ),
        "medium": (
            "0.0478 * (current1 * current2)**1.5 / distance**3",
            "0.0478 * (current1 * current2)**2 * distance",
            "0.0478 * current2 / distance**3.8",
        ),
        "hard": (
            "0.0478 * (current1 + current2)**1.5 / distance**3",
            "0.0478 * (current1 - current2)**2 * distance",
            "0.0478 * current2**0.9 / distance**3.8",
        ),
    },
    "m3_fourier_law": {
        "easy": ("k * A * delta_T / d**2", "k * A**0.5 * delta_T / d", "k * A * delta_T**2 / d"),
        "medium": ("k * A**0.5 * delta_T / d**2", "k * A**0.5 * delta_T**2.7 / d", "k * delta_T**2 / (d * A**3.4)"),
        "hard": (
            "k * A**0.5 * delta_T**1.3 / d**2",
            "k * A**0.5 * delta_T**2.7 / d**(3/7)",
            "k * delta_T**2 / (sqrt(d) * A**3.4)",
        ),
    },
    "m4_snell_law": {
        "easy": (
            "degrees(acos(n1 * sin(radians(angle1)) / n2))",
            "degrees(asin(n2 * sin(radians(angle1)) / n1))",
            "degrees(atan(n1 * sin(radians(angle1)) / n2))",
        ),
        "medium": (
            "degrees(acos(n1 * cos(radians(angle1)) / n2))",
            "degrees(acos(n2 * sin(radians(angle1)) / n1))",
            "degrees(atan(n1 * tan(radians(angle1)) / n2))",
        ),
        "hard": (
            "degrees(acos(n1**2 * cos(radians(angle1)) / n2))",
            "degrees(acos(n2 * sin(radians(angle1)) / n1**2.5))",
            "degrees(atan((n1 / n2)**2 * tan(radians(angle1))))",
        ),
    },
    "m5_radioactive_decay": {
        "easy": (
            "N0 * exp(-lambda_constant * t**1.5)",
            "N0 * exp(-lambda_constant**1.5 * t)",
            "N0 * exp(-(lambda_constant * t)**1.5)",
        ),
        "medium": (
            "N0**1.2 * exp(-lambda_constant * t**1.5)",
            "N0**1.4 * exp(-lambda_constant**1.5 * t)",
            "N0**1.8 * exp(-(lambda_constant * t)**1.5)",
        ),
        "hard": (
            "N0**1.2 * exp(-lambda_constant**exp(1) * t**1.5)",
            "N0**1.4 * exp(-lambda_constant**1.5 * t**exp(1))",
            "N0**1.8 * exp(-(lambda_constant * t)**(exp(1) + 1.5))",
        ),
    },
    "m6_underdamped_harmonic": {
        "easy": ("sqrt(k / m - b / (2 * m))", "(k / m - (b / (2 * m))**2)**2", "k / m - (b / (2 * m))**2"),
        "medium": ("sqrt(k / m - b / (2 * m**2))", "(k / m**2 - (b / (2 * m))**2)**2", "k / m**1.3 - (b / (2 * m))**2"),
        "hard": ("(k / m - b / (2 * m**2))**1.5", "(k * m**2 - (b / (2 * m))**2)**2", "k / m**1.3 - (b / (2 * m))**0.7"),
    },
    "m7_malus_law": {
        "easy": (
            "I_0 * (sin(theta) + cos(theta))**2",
            "I_0 * (sin(theta) / cos(theta))**2",
            "I_0 * (cos(theta) / sin(theta))**2",
        ),
        "medium": (
            "I_0 * (2 * sin(theta) + cos(theta))**2",
            "I_0 * sin(theta)**2 / cos(theta)**3",
            "I_0 * (cos(theta) / sin(theta))**exp(1)",
        ),
        "hard": (
            "I_0 * (2 * sin(theta) + 1.5 * cos(theta))**2",
            "I_0 * (sin(theta)**2 / cos(theta)**3)**exp(1)",
            "I_0 * (sin(theta)**2 / cos(theta))**exp(1)",
        ),
    },
    "m8_sound_speed": {
        "easy": ("sqrt(gamma * 351.6 * T**2 / M)", "gamma * 351.6 * T / M", "sqrt(351.6 * T / M)"),
        "medium": ("sqrt(gamma * 351.6 * T**2 / M**1.5)", "gamma * T * 351.6 / M**(1/3)", "sqrt(351.6 * T * M**1.5)"),
        "hard": (
            "sqrt(exp(gamma) * 351.6 * T**2 / M**1.5)",
            "log(gamma) * T * 351.6 / M**(1/3)",
            "(351.6 * T * M**1.5)**(-2.8)",
        ),
    },
    "m9_hooke_law": {
        "easy": ("2 * 231.141 * x**2", "2 * 231.141 * x**0.5", "2 * 231.141 * x**3.4"),
        "medium": (
            "2 * 231.141 * x**2 + 1241.9012 * x",
            "2 * 231.141 * x**0.5 + 1241.9012 * x**3",
            "2 * 231.141 * x**3.4 + 1241.9012 * x**0.5",
        ),
        "hard": (
            "2 * 231.141 * x**2 + 1241.9012 * x + 12.578 / sqrt(x)",
            "2 * 231.141 * x**0.5 + 1241.9012 * x**3 + 12.578 / x**0.3",
            "2 * 231.141 * x**3.4 + 1241.9012 * x**0.5 + 12.578 / x**(10/3)",
        ),
    },
    "m10_be_distribution": {
        "easy": (
            "1 / (exp(1.0513e-14 * omega / T) + 1)",
            "1 / (exp(1.0513e-14 * omega**0.5 / T) - 1)",
            "1 / (exp(1.0513e-14 * omega / T**3) - 1)",
        ),
        "medium": (
            "1 / (exp(1.0513e-14 * omega**1.5 / T) + 1)",
            "1 / (exp(1.0513e-14 * omega**0.5 * T) - 1)",
            "1 / (exp(1.0513e-14 * omega**1.5 / T**3) - 1)",
        ),
        "hard": (
            "1 / (exp(1.0513e-14 * omega**1.5 / T**2) + 1)",
            "1 / (exp(1.0513e-14 * omega**0.5 * T**2.3) - 1)",
            "1 / (-log(1.0513e-14 * omega**1.5 / T**3) - 1)",
        ),
    },
    "m11_heat_transfer": {
        "easy": ("m * c * delta_T**2.5", "m**2.5 * c * delta_T", "(m * delta_T)**2.5 * c"),
        "medium": ("c / (m * delta_T**2.5)", "c / (m**2.5 * delta_T)", "c / (m**2.5 * delta_T**2.5)"),
        "hard": (
            "c / (m**(exp(1) + 1) * delta_T**2.5)",
            "c / (m**2.5 * delta_T**(exp(1) + 1))",
            "c / (m * delta_T)**(exp(1) + 1)",
        ),
    },
}


@dataclass(frozen=True, slots=True)
class Law:
    """A hidden law. Called with the module's parameters in order, it gives a number; NaN or 0 where the law says nothing."""

    module: modules.Module
    expression: str
    _value: Callable[..., float]
    _silent: Callable[..., float]

    def __call__(self, *arguments: float) -> float:
        if self._silent(*arguments):
            return self.module.silence
        try:
            value = self._value(*arguments)
        except (ArithmeticError, ValueError):
            return math.nan
        return math.nan if isinstance(value, complex) else value


@cache
def law_of(module: str, difficulty: str, version: str) -> Law:
    """The hidden law; raises `ValueError` for a difficulty or version that does not exist."""
    if difficulty not in LAWS[module]:
        raise ValueError(f"there is no difficulty {difficulty!r} (there are: {', '.join(LAWS[module])})")
    if version not in VERSIONS:
        raise ValueError(f"there is no law version {version!r} (there are: {', '.join(VERSIONS)})")
    expression = LAWS[module][difficulty][VERSIONS.index(version)]
    about = modules.MODULES[module]
    return Law(about, expression, _function(about, expression), _function(about, about.silent))


def _function(module: modules.Module, expression: str) -> Callable[..., float]:
    source = f"lambda {', '.join(module.parameters)}: {expression}"
    function: Callable[..., float] = eval(source, dict(_FUNCTIONS))  # noqa: S307 - the tables of this package alone
    return function
