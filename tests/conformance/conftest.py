"""One test per case, and the table at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import agents, running
from tests.conformance.cases import NOWHERE, Case, directory, load
from tests.conformance.forms import running_code
from tests.conformance.report import REPORT, Row, report_page

_MISSING = "conformance-missing"
_FINAL = ("passed", "failed", "skipped")  # one more: "rerun"


@dataclass(eq=False)  # plugins are compared by identity
class Tally:
    """Results by subject, as the reports come in. `missing` counts the cases of what the project does not have.

    When several processes run the tests, each hands its `missing`, found while collecting, to the one that has the reports.
    """

    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    missing: Counter[str] = field(default_factory=Counter)
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        subject = properties.get("conformance")
        if subject is not None and (report.when == "call" or report.failed) and report.outcome in _FINAL:
            self._count(str(subject), report)
        if subject is not None and report.when == "call":
            self.cpu_s[str(subject)] += properties.get("verify_cpu_s", ())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_MISSING] = dict(self.missing)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.missing |= Counter(getattr(node, "workeroutput", {}).get(_MISSING, {}))  # all collect the same

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if self.passed or self.failed or self.skipped:
            terminalreporter.section("conformance")
            for line in self.table():
                terminalreporter.write_line(line)
        page = config.getoption(REPORT, None)
        if page:
            Path(page).write_text(report_page(self.rows()), "utf-8")

    def rows(self) -> list[Row]:
        """What the report says, by subject."""
        ran = sorted({*self.passed, *self.failed, *self.skipped})
        return [
            Row(name, self.passed[name], self.failed[name], dict(self.skipped.get(name, {})), self.cpu_s[name]) for name in ran
        ] + [Row(name, 0, 0, {"not part of this project": n}, ()) for name, n in self.missing.items()]

    def table(self) -> Iterator[str]:
        """The lines of the table: what ran, then what is missing."""
        ran = sorted({*self.passed, *self.failed, *self.skipped})
        width = max(map(len, [*ran, *self.missing, "environment"]))
        yield f"{'environment':{width}}  passed  failed  skipped"
        for name in ran:
            reasons = self.skipped.get(name, Counter())
            why = "".join(f"  ({n} × {reason})" for reason, n in reasons.most_common())
            yield f"{name:{width}}  {self.passed[name]:6}  {self.failed[name]:6}  {reasons.total():7}{why}"
        for name, cases in sorted(self.missing.items()):
            yield f"{name:{width}}  missing ({cases} cases)"

    def _count(self, subject: str, report: pytest.TestReport) -> None:
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple | list) else str(report.longrepr)
            self.skipped[subject][reason.removeprefix("Skipped: ")] += 1
        else:
            (self.passed if report.passed else self.failed)[subject] += 1


TALLY = pytest.StashKey[Tally]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(REPORT, metavar="FILE", help="write passed cases and CPU per verification as a Markdown page")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TALLY] = Tally()
    config.pluginmanager.register(config.stash[TALLY], "conformance-tally")


def pytest_sessionfinish() -> None:
    running_code.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    folder = directory()
    if folder is None:
        metafunc.parametrize("case", [pytest.param(None, marks=pytest.mark.skip(reason=NOWHERE), id="no-directory")])
        return
    found = [c for c in load(folder) if _present(c, metafunc.config.stash[TALLY])]
    metafunc.parametrize("case", [pytest.param(c, id=c.id) for c in found])


def _present(case: Case, tally: Tally) -> bool:
    kind, _, agent = case.subject.partition("/")
    there = agents.exists(agent) if kind == "agents" else running.exists(case.subject)
    if not there:
        tally.missing[case.subject] += 1
    return there
