"""Files, env.yaml and words as one tree (platform.md E1, E2): order, includes, what is missing, what leads nowhere."""

import pytest

from rollstream.nemo_gym.errors import ConfigurationError
from rollstream.nemo_gym.merging import MAX_FILE_BYTES, merge
from rollstream.nemo_gym.overrides import parse
from rollstream.nemo_gym.roots import Roots


def merged(*words, search=(), **more):
    return merge([parse(w) for w in words], Roots.of(search, {}), **more)


def values(*words, **more):
    found = merged(*words, **more).values
    found.pop("config_paths", None)
    return found


def test_e1_files_then_env_then_words_the_later_wins(write):
    write("a.yaml", "x: {one: a, two: a, three: a, four: a}\n")
    write("b.yaml", "x: {two: b, three: b, four: b}\n")
    write("env.yaml", "x: {three: env, four: env}\n")
    assert values("+config_paths=[a.yaml,b.yaml]", "x.four=word") == {
        "x": {"one": "a", "two": "b", "three": "env", "four": "word"}
    }
    assert values("+config_paths=[b.yaml,a.yaml]")["x"]["two"] == "a"


def test_e1_a_file_wins_over_those_that_it_includes_and_a_later_sibling_over_both(write):
    write("deep.yaml", "k: deep\nonly: deep\n")
    write("mid.yaml", "config_paths: [deep.yaml]\nk: mid\nm: mid\n")
    write("top.yaml", "config_paths: [mid.yaml]\nk: top\n")
    write("next.yaml", "m: next\n")
    assert values("+config_paths=[top.yaml,next.yaml]") == {"k": "top", "only": "deep", "m": "next"}


def test_e1_env_yaml_may_list_the_files(write):
    write("a.yaml", "k: 1\n")
    write("env.yaml", "config_paths: [a.yaml]\n")
    assert values() == {"k": 1}


def test_e1_a_file_named_twice_counts_once_and_that_is_said(write):
    write("a.yaml", "config_paths: [c.yaml]\nk: 1\n")
    write("b.yaml", "config_paths: [c.yaml]\nk: 2\n")
    write("c.yaml", "config_paths: [a.yaml]\nc: 3\n")  # a circle, too
    found = merged("+config_paths=[a.yaml,b.yaml]")
    assert (found.values["k"], found.values["c"]) == (2, 3)
    assert [w for w in found.warnings if "c.yaml is named more than once" in w]


def test_e1_every_value_knows_its_file(write):
    write("a.yaml", "x: {y: 1, z: 2}\n")
    found = merged("+config_paths=[a.yaml]", "x.z=3")
    assert found.where(["x", "y"]).endswith("a.yaml")
    assert found.where(["x", "z"]) == "command line"
    assert found.where(["nowhere"]) == "default"


def test_e1_values_that_are_missing_are_listed_in_one_error(write):
    write("a.yaml", "x: {y: '???', z: [1, '???']}\nw: ???\ngone: {_delete_key: k, k: '???'}\n")
    with pytest.raises(ConfigurationError) as e:
        merged("+config_paths=[a.yaml]")
    lines = str(e.value).splitlines()
    assert [line.split(" ")[0] for line in lines[:3]] == ["x.y", "x.z.1", "w"]
    assert all("a.yaml): has no value yet (???)" in line for line in lines[:3])
    assert "++x.y=…" in lines[3]
    assert values("+config_paths=[a.yaml]", "x.y=1", "++x.z=[2]", "w=3") == {"x": {"y": 1, "z": [2]}, "w": 3, "gone": {}}


def test_e1_interpolations_and_those_that_lead_nowhere(write, monkeypatch):
    monkeypatch.setenv("NG_TEST_KEY", "from-environment")
    write(
        "a.yaml",
        "a: ${policy_base_url}/x\nb: ${oc.env:NG_TEST_KEY}\nc: ${oc.env:NG_TEST_NO,5}\npolicy_base_url: http://h\nd: ${a}\n",
    )
    assert values("+config_paths=[a.yaml]") == {
        "a": "http://h/x", "b": "from-environment", "c": "5", "policy_base_url": "http://h", "d": "http://h/x",
    }  # fmt: skip
    write("b.yaml", "a: {b: '${policy_base_ulr}'}\npolicy_base_url: h\nc: ${oc.env:NG_TEST_NO}\nd: ${d}\n")
    with pytest.raises(ConfigurationError) as e:
        merged("+config_paths=[b.yaml]")
    said = str(e.value)
    assert (
        "a.b (b.yaml): ${policy_base_ulr} names policy_base_ulr, which nothing sets; did you mean ${policy_base_url}?" in said
    )
    assert "c (b.yaml): ${oc.env:NG_TEST_NO} cannot be resolved" in said
    assert "d (b.yaml): " in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\n", r"bad\.yaml:2:1: "),
        ("a: 1\na: 2\n", r"bad\.yaml:2:1: found duplicate key a"),
        ("- 1\n", "expected keys and values, found list"),
        ("just text\n", "expected keys and values, found str"),
        ("\xff: 1", r"bad\.yaml"),
        ("a: ${broken\n", r"bad\.yaml: no viable alternative at input '\$\{broken'.*a"),
    ],
)
def test_e1_a_broken_file_is_named_with_the_line(tmp_path, text, said):
    (tmp_path / "bad.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=said):
        merged("+config_paths=[bad.yaml]")


def test_e1_an_empty_file_is_empty_and_an_enormous_one_is_none(write):
    write("empty.yaml", "")
    assert values("+config_paths=[empty.yaml]") == {}
    write("huge.yaml", "a: " + "x" * MAX_FILE_BYTES)
    with pytest.raises(ConfigurationError, match="larger than 4 MiB"):
        merged("+config_paths=[huge.yaml]")


def test_e1_a_plain_word_is_for_a_key_that_is_there(write):
    write("a.yaml", "judge: {temperature: 1}\n")
    with pytest.raises(ConfigurationError) as e:
        merged("+config_paths=[a.yaml]", "judge.temprature=0", "~judge.gone")
    first, second = str(e.value).splitlines()
    assert (
        first
        == "judge.temprature (command line): no file has this key; did you mean judge.temperature?; +judge.temprature=… adds it"
    )
    assert second.startswith("judge.gone (command line): no file has this key")
    assert values("+config_paths=[a.yaml]", "+judge.top_p=1") == {"judge": {"temperature": 1, "top_p": 1}}
    assert values("+config_paths=[a.yaml]", "~judge.temperature") == {"judge": {}}
    assert values("limit=3", free={"limit"}.__contains__) == {"limit": 3}


def test_e1_config_paths_must_be_a_list(write):
    with pytest.raises(
        ConfigurationError, match=r"expected a list of paths, found 'a\.yaml'; write '\+config_paths=\[a\.yaml,b\.yaml\]'"
    ):
        merged("+config_paths=a.yaml")


def test_e1_a_file_that_is_nowhere_is_said_with_its_places_and_the_nearest_name(tmp_path, write):
    write("top.yaml", "config_paths: [modls/x.yaml]\n")
    with pytest.raises(ConfigurationError) as e:
        merged("+config_paths=[top.yaml]", known=lambda: ["models/x.yaml", "other.yaml"])
    assert str(e.value) == f"modls/x.yaml (top.yaml): not in {tmp_path}, and not shipped; did you mean 'models/x.yaml'?"


def test_e2_search_folders_then_the_variable_then_here_and_what_is_hidden_is_said(tmp_path, write):
    for folder in ("named", "extra", "."):
        write(f"{folder}/c.yaml", f"k: {folder}\n")
    write("extra/d.yaml", "d: extra\n")
    environ = {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path / "extra")}
    roots = Roots.of([tmp_path / "named"], environ)
    found = merge([parse("+config_paths=[c.yaml,d.yaml]")], roots)
    assert (found.values["k"], found.values["d"]) == ("named", "extra")
    (warning,) = [w for w in found.warnings if "hides" in w]
    assert "named/c.yaml is used; it hides" in warning
    assert "extra/c.yaml" in warning
    assert merge([parse("+config_paths=[c.yaml]")], Roots.of((), environ)).values["k"] == "extra"


def test_e2_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere: there is no such folder \(named by --search-dir\)"):
        Roots.of(["nowhere"], {})
    with pytest.raises(ConfigurationError, match=r"named by NEMO_GYM_EXTRA_ROOTS"):
        Roots.of([], {"NEMO_GYM_EXTRA_ROOTS": str(tmp_path / "no")})


def test_paths_that_are_no_paths_are_not_found():
    roots = Roots.of((), {})
    assert [roots.find(p) for p in ("x" * 5_000, "a\0b", "", ".", "/")] == [None] * 5
