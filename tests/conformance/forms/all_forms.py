"""The forms that the suite knows, in the order in which they act."""

from __future__ import annotations

from tests.conformance.forms.form import Form
from tests.conformance.forms.programs import Programs
from tests.conformance.forms.scoring import Scoring
from tests.conformance.forms.tools import Tools

FORMS: tuple[Form, ...] = (Programs(), Tools(), Scoring())
