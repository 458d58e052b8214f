"""Who handles which record, when a run with its own workers shares topics with others."""

from types import SimpleNamespace

import pytest

from schemas import headers
from services.runtime.scope import Scope


@pytest.mark.parametrize(
    ("scope", "run", "excluded"),
    [
        ("", None, False),
        ("", b"night-7", False),
        ("", b"solo-1", True),
        ("solo-1", b"solo-1", False),
        ("solo-1", b"solo-11", True),
        ("solo-1", b"night-7", True),
        ("solo-1", None, False),
        ("night-7", b"night-7", False),
        ("night-7", b"\xff", True),
    ],
)
def test_a_record_has_one_owner(scope, run, excluded):
    record = SimpleNamespace(headers=[("other", b"x"), *([(headers.RUN, run)] if run is not None else [])])
    assert Scope(scope).excludes(record) is excluded
