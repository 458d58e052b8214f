"""`_inherit_from`, `_copy`, `_delete_key` and their interpolations (platform.md E4)."""

import pytest

from rollstream.nemo_gym.directives import applied
from rollstream.nemo_gym.errors import ConfigurationError


def done(values):
    return applied(values, lambda _: "f.yaml")


def test_e4_inherit_merges_over_the_source_and_takes_it_away():
    values = {"a": {"x": {"deep": {"p": 1, "q": 2}}, "y": 3}, "b": {"_inherit_from": "a", "x": {"deep": {"q": 5}}, "z": 4}}
    assert done(values) == {"b": {"x": {"deep": {"p": 1, "q": 5}}, "y": 3, "z": 4}}


def test_e4_copy_leaves_the_source():
    values = {"a": {"x": 1}, "b": {"_copy": "a", "y": 2}, "c": "${copy:a.x}", "d": ["${copy:a}"]}
    assert done(values) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": 1, "d": [{"x": 1}]}


def test_e4_interpolated_inheritance_moves_a_block_or_a_value():
    assert done({"a": {"x": 1}, "b": "${inherit_from:a}"}) == {"b": {"x": 1}}
    assert done({"a": {"x": 1, "y": 2}, "b": "${inherit_from:a.x}"}) == {"a": {"y": 2}, "b": 1}


def test_e4_several_may_inherit_from_one():
    assert done({"a": {"x": 1}, "b": {"_inherit_from": "a"}, "c": {"_inherit_from": "a", "x": 2}}) == {
        "b": {"x": 1},
        "c": {"x": 2},
    }


def test_e4_keys_are_deleted_own_ones_and_inherited_ones():
    values = {
        "a": {"x": 1, "y": 2, "z": 3},
        "b": {"_inherit_from": "a", "_delete_key": "x, z"},
        "c": {"_delete_key": "k", "k": 1},
    }
    assert done(values) == {"b": {"y": 2}, "c": {}}


def test_e4_a_source_has_directives_of_its_own_and_order_does_not_matter():
    values = {"c": {"_copy": "b", "z": 3}, "b": {"_copy": "a", "y": 2}, "a": {"x": 1}}
    assert done(values)["c"] == {"x": 1, "y": 2, "z": 3}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"judge": {"x": 1}, "b": {"_inherit_from": "jugde"}},
            r"b \(f\.yaml\): jugde: there is no jugde; did you mean 'judge'\?",
        ),
        ({"a": {"in": 1}, "b": "${copy:a.on}"}, r"a\.on: there is no a\.on"),
        ({"a": {"_inherit_from": "b"}, "b": {"_copy": "a"}}, "inherits from itself"),
        ({"a": {"_copy": "a"}}, "inherits from itself"),
        ({"a": 1, "b": {"_copy": "a"}}, "a is a plain value"),
        ({"a": {"x": 1}, "b": {"_copy": "a", "_delete_key": "xx"}}, "there is no key 'xx' to delete"),
        ({"b": {"_copy": 5}}, "name the block by its dotted path, not 5"),
        ({"b": {"_delete_key": ["x"]}}, "name keys, by comma"),
    ],
)
def test_e4_a_path_that_leads_nowhere_is_said_with_key_file_and_nearest_word(values, said):
    with pytest.raises(ConfigurationError, match=said):
        done(values)


def test_values_are_left_as_they_were_given():
    values = {"a": {"x": {"y": 1}}, "b": {"_inherit_from": "a", "x": {"z": 2}}}
    done(values)
    assert values == {"a": {"x": {"y": 1}}, "b": {"_inherit_from": "a", "x": {"z": 2}}}
