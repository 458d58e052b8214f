"""Quick frozen dataclasses are frozen dataclasses."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.quick import evolve, quick


@dataclass(frozen=True, slots=True)
class Plain:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)
    d: tuple[int, ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    a: int
    b: str = "x"
    c: list[int] = field(default_factory=list)
    d: tuple[int, ...] = ()

    @property
    def twice(self):
        return 2 * self.a


FIELDS = st.fixed_dictionaries(
    {"a": st.integers()}, optional={"b": st.text(), "c": st.lists(st.integers()), "d": st.tuples(st.integers())}
)


@given(FIELDS, FIELDS)
def test_they_hold_what_plain_ones_hold(values, others):
    made, plain = Quick(**values), Plain(**values)
    assert dataclasses.asdict(made) == dataclasses.asdict(plain)
    assert repr(made) == repr(plain).replace("Plain", "Quick")
    assert dataclasses.asdict(evolve(made, **others)) == dataclasses.asdict(dataclasses.replace(plain, **others))
    assert dataclasses.replace(made, **others) == evolve(made, **others)
    assert (made == Quick(**others)) is (plain == Plain(**others))
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin == made
        assert type(twin) is Quick


def test_they_are_frozen_and_have_no_other_attributes():
    made = Quick(1)
    for change in (lambda: setattr(made, "a", 2), lambda: delattr(made, "a"), lambda: setattr(made, "other", 2)):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            change()
    assert made.a == 1
    assert made.twice == 2
    with pytest.raises(AttributeError):
        evolve(made, other=2)


def test_defaults_are_made_anew_and_hashes_agree():
    assert Quick(1).c is not Quick(1).c
    assert isinstance(Quick(1), Quick)
    key = Quick(1, "x", (), (2,))
    assert hash(key) == hash(Quick(1, "x", (), (2,)))


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="missing 1 required"):
        Quick()
    with pytest.raises(TypeError, match="unexpected keyword"):
        Quick(1, other=2)


def test_classes_that_it_cannot_hold_for_are_refused():
    with pytest.raises(TypeError, match="can be quick"):

        @quick
        @dataclass(frozen=True, slots=True)
        class Heir(Plain):
            e: int = 0

    with pytest.raises(TypeError, match="can be quick"):

        @quick
        @dataclass(frozen=True)
        class Loose:
            a: int
