"""The forms that the suite knows, in the order in which they act."""

from __future__ import annotations

from tests.conformance.forms.agent import PlayedAgent
from tests.conformance.forms.code_server import ScriptedServer
from tests.conformance.forms.data import Data
from tests.conformance.forms.experiments import Experiments
from tests.conformance.forms.form import Form
from tests.conformance.forms.groups import Groups
from tests.conformance.forms.judge import Judge
from tests.conformance.forms.pages import ScriptedPages
from tests.conformance.forms.programs import Programs
from tests.conformance.forms.running_code import RunningCode
from tests.conformance.forms.scoring import Scoring
from tests.conformance.forms.steps import Steps
from tests.conformance.forms.tools import Tools

_BESIDE_SCORING: tuple[Form, ...] = (
    Programs(),
    Data(),
    RunningCode(),
    Experiments(),
    Judge(),
    Tools(),
    Steps(),
    ScriptedPages(),
    ScriptedServer(),
    PlayedAgent(),
    Groups(),
)

FORMS: tuple[Form, ...] = (*_BESIDE_SCORING, Scoring(frozenset().union(*(f.expected_keys for f in _BESIDE_SCORING))))
