"""What the script answers, without HTTP."""

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollstream.scripted import Latency, Options, script
from rollstream.scripted.arguments import Source, arguments
from services.models import reply as replies

MCQA = "Which planet is largest?\nA: Mars\nB: Jupiter\nC: Venus\nD: Earth\nAnswer with \\boxed{letter}."
OPTIONS = Options()


def tool(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "name": name, "parameters": schema, "strict": True}


WEATHER = tool("get_weather", city={"type": "string"})
MULTI = [
    tool("get_synonym_value", synonym={"type": "string"}),
    tool("extract_synonym_values", synonym_values={"type": "array", "items": {"type": "integer"}}),
]
COUNTER = [tool("increment_counter", count={"type": "integer"}), tool("get_counter_value")]


def ask(request, options=OPTIONS, key=""):
    digest = script.digest(request, key, options)
    turn = script.read(request, digest)
    items = script.output(turn, options)
    body = script.response(request, items, turn, (100, 50), 0)
    assert replies.problem(body) is None
    return items


def loop(prompt, tools, answer, options=OPTIONS, limit=50):
    """The agent loop of simple_agent with a scripted tool: calls made (name, arguments) and the final text."""
    items, calls = [{"role": "user", "content": prompt}], []
    for _ in range(limit):
        output = ask({"input": items, "tools": tools}, options)
        items += output
        made = [i for i in output if i["type"] == "function_call"]
        if not made:
            return calls, output[-1]["content"][0]["text"]
        for c in made:
            calls.append((c["name"], json.loads(c["arguments"])))
            items.append({"type": "function_call_output", "call_id": c["call_id"], "output": answer(*calls[-1])})
    raise AssertionError("the script never finishes")


def text_of(items):
    return items[-1]["content"][0]["text"]


def test_it_boxes_one_of_the_options_and_the_same_one_again():
    texts = {text_of(ask({"input": [{"role": "user", "content": MCQA}]})) for _ in range(3)}
    assert len(texts) == 1
    assert texts.pop().split("\\boxed")[1] in {"{A}", "{B}", "{C}", "{D}"}


def test_questions_and_seeds_and_if_wanted_keys_change_the_choice():
    def letters(requests):
        return {text_of(ask(r, o, k)).rsplit("{", 1)[1][0] for r, o, k in requests}

    question = {"input": MCQA}
    assert letters(({"input": f"{i} {MCQA}"}, OPTIONS, "") for i in range(40)) == set("ABCD")
    assert letters((question, Options(seed=i), "") for i in range(40)) == set("ABCD")
    assert letters((question, Options(vary_by_key=True), f"k{i}") for i in range(40)) == set("ABCD")
    assert len(letters((question, OPTIONS, f"k{i}") for i in range(40))) == 1


def test_an_answer_line_where_the_prompt_wants_one():
    assert "Answer: " in text_of(ask({"input": "Pick.\n(A) x\n(B) y\nEnd with 'Answer: LETTER'."}))


def test_without_options_it_says_what_it_is():
    assert "script" in text_of(ask({"input": "Hello"}))


def test_single_tool_call():
    prompt = "what is the weather in San Francisco today?"
    calls, text = loop(prompt, [WEATHER], lambda *_: '{"weather_description":"cold"}')
    assert len(calls) == 1
    name, made = calls[0]
    assert name == "get_weather"
    assert made["city"] in prompt
    assert text


def test_multi_step_submits_the_numbers_that_the_tool_returned():
    calls, _ = loop("Synonyms of Hot: Blazing, Warm", MULTI, lambda n, _a: '{"synonym_value":711}' if "get" in n else "{}")
    assert [c[0] for c in calls] == ["get_synonym_value", "extract_synonym_values"]
    assert isinstance(calls[0][1]["synonym"], str)
    assert calls[1][1] == {"synonym_values": [711]}


def test_session_state_counts_and_looks():
    calls, _ = loop("Add 4 and then 3", COUNTER, lambda *_: '{"success":true}')
    assert [c[0] for c in calls] == ["increment_counter", "get_counter_value"]
    assert isinstance(calls[0][1]["count"], int)
    assert calls[1][1] == {}


@pytest.mark.parametrize("turns", [0, 1, 4, 16])
def test_as_many_tool_turns_as_asked_for_and_of_the_size_asked_for(turns):
    options = Options(tool_turns=turns, turn_bytes=5000, pad_bytes=7000)
    calls, text = loop("Weather in Rome", [WEATHER], lambda *_: "{}", options)
    assert len(calls) == turns
    assert 7000 <= len(text) < 7200
    if turns:
        items = ask({"input": "Weather in Rome", "tools": [WEATHER]}, options)
        assert 5000 <= len(orjson.dumps(items)) < 5600


def test_tool_choice_is_heeded():
    assert ask({"input": "x", "tools": [WEATHER], "tool_choice": "none"})[0]["type"] == "message"
    chosen = ask({"input": "x", "tools": COUNTER, "tool_choice": {"type": "function", "name": "get_counter_value"}})
    assert chosen[0]["name"] == "get_counter_value"


def test_odd_requests_still_get_an_answer():
    odd = [
        {"input": None},
        {"input": [None, 3, {"role": "user"}]},
        {"tools": "x"},
        {"input": "x", "tools": [{"type": "function"}]},
    ]
    for request in [*odd, {"input": "\ud83d"}, {}]:
        ask(request)


SCHEMAS = st.recursive(
    st.one_of(
        st.sampled_from([{"type": t} for t in ("string", "integer", "number", "boolean", "null")]),
        st.builds(
            lambda lo, d: {"type": "integer", "minimum": lo, "maximum": lo + d}, st.integers(-99, 99), st.integers(0, 99)
        ),
        st.builds(
            lambda lo, d: {"type": "string", "minLength": lo, "maxLength": lo + d}, st.integers(0, 50), st.integers(0, 9)
        ),
        st.lists(st.integers() | st.text(), min_size=1).map(lambda v: {"enum": v}),
        st.integers().map(lambda v: {"const": v}),
    ),
    lambda inner: st.one_of(
        st.builds(lambda i: {"type": "array", "items": i, "minItems": 1, "maxItems": 9}, inner),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
        st.dictionaries(st.text(max_size=5), inner, max_size=3).map(
            lambda p: {"type": "object", "properties": p, "required": sorted(p)}
        ),
    ),
    max_leaves=8,
)


def fits(value, schema):  # noqa: PLR0911 – the part of JSON Schema that SCHEMAS uses
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    if "anyOf" in schema:
        return any(fits(value, s) for s in schema["anyOf"])
    match schema["type"]:
        case "object":
            return set(schema["required"]) <= set(value) and all(fits(v, schema["properties"][k]) for k, v in value.items())
        case "array":
            return schema["minItems"] <= len(value) <= 9 and all(fits(v, schema["items"]) for v in value)
        case "string":
            return isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1e9)
        case "integer" | "number":
            ok = type(value) is int or (schema["type"] == "number" and type(value) is float)
            return ok and schema.get("minimum", -1e9) <= value <= schema.get("maximum", 1e9)
        case "boolean":
            return type(value) is bool
    return value is None


@given(
    st.dictionaries(st.text(max_size=5), SCHEMAS, max_size=4), st.text(max_size=80), st.lists(st.integers(-9, 9), max_size=3)
)
def test_arguments_fit_the_schema(properties, prompt, numbers):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    made = arguments(schema, Source(prompt, numbers, b"0123456789abcdef"))
    assert set(made) == set(properties)
    for name, value in made.items():
        assert fits(value, properties[name]), (name, value)


def test_recursive_and_broken_schemas_end():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
    schema = {"$defs": {"node": node}, **node}
    broken = [None, "x", {"type": 3}, {"type": "object", "required": [1]}, {"properties": []}]
    for s in [schema, *broken, {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}]:
        assert isinstance(arguments(s, Source("", (), b"0")), dict)


def test_latencies():
    assert Latency.parse("0.5").draw(0.9) == 0.5
    assert Latency.parse("uniform:1:3").draw(0.5) == 2
    assert Latency.parse("exponential:2").draw(0.5) == pytest.approx(1.386, abs=0.01)
    assert Latency.parse("lognormal:2:0.7").draw(0.5) == pytest.approx(2)
    assert Latency.parse("exponential:2").draw(0.0) >= 0
    for bad in ("", "x", "gauss:1:2", "uniform:-1:2", "nan"):
        with pytest.raises(ValueError):
            Latency.parse(bad)


def test_the_slow_ones_are_as_many_as_asked_for_and_the_same_each_time():
    options = Options(latency=Latency(seconds=1), slow_fraction=0.01, slow_factor=100)
    delays = [options.delay(script.digest({"input": str(i)}, "", options)) for i in range(20_000)]
    assert set(delays) == {1.0, 100.0}
    assert 120 <= delays.count(100.0) <= 280
    assert delays == [options.delay(script.digest({"input": str(i)}, "", options)) for i in range(20_000)]
