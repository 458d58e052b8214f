"""All checks of one environment, in their order."""

from __future__ import annotations

from collections.abc import Callable

from environments.discovery import Broken
from rollstream.checking import describing, scoring
from rollstream.checking.findings import Findings, Problem
from rollstream.checking.fixtures import check_fixtures
from rollstream.checking.subject import Subject

Check = Callable[[Subject, list[str]], None]

_FIRST: dict[str, Check] = {
    "manifest": describing.check_manifest,
    "extra": describing.check_extra,
    "variants": describing.check_variants,
}
_THEN: dict[str, Check] = {
    "README": describing.check_readme,
    "tools": describing.check_tools,
    "examples": scoring.check_examples,
    "rollouts": scoring.check_rollouts,
    "determinism": scoring.check_determinism,
    "state": scoring.check_state,
    "time": scoring.check_time,
    "fixtures": check_fixtures,
}

NAMES = (*_FIRST, *_THEN)


def check(subject: Subject) -> Findings:
    """Every check of an environment; those that need its class are skipped when it cannot be had."""
    findings = Findings(subject.entry.manifest.name)
    for name, function in _FIRST.items():
        with findings.check(name) as said:
            function(subject, said)
    if findings.failed:
        findings.skip(_THEN, "the environment cannot be used as it is")
        return findings
    for name, function in _THEN.items():
        with findings.check(name) as said:
            function(subject, said)
    return findings


def unusable(broken: Broken) -> Findings:
    """The findings about something that is registered and cannot be read."""
    findings = Findings(broken.name)
    with findings.check("manifest"):
        raise Problem(broken.error)
    findings.skip(NAMES[1:], "the environment cannot be used as it is")
    return findings
