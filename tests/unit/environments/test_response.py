"""Reading a Responses object: the two text rules, and that no shape of body makes reading fail."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from environments.response import Response


def part(kind: str, text: Any) -> dict[str, Any]:
    return {"type": kind, "text": text}


MIXED = Response(
    {
        "output": [
            {"type": "reasoning", "summary": [part("summary_text", "no")], "content": [part("reasoning_text", "no")]},
            {"type": "message", "role": "user", "content": [part("output_text", "no")]},
            {
                "type": "message",
                "role": "assistant",
                "content": [part("output_text", "a "), part("refusal", None), {"refusal": "no"}],
            },
            {"role": "assistant", "content": "b"},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "output": "no"},
            {
                "type": "message",
                "role": "assistant",
                "content": [part("other", "c"), part("output_text", ""), part("output_text", "d ")],
            },
        ],
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"input_tokens": 1},
    }
)


def test_flat_text_glues_output_texts_of_assistant_messages() -> None:
    assert MIXED.flat_text() == "a bd "


def test_joined_text_has_every_text_on_a_line_of_its_own() -> None:
    assert MIXED.joined_text() == "a \nb\nc\nd"


def test_the_rest() -> None:
    assert [c["name"] for c in MIXED.function_calls()] == ["f"]
    assert MIXED.incomplete_reason == "max_output_tokens"
    assert MIXED.usage == {"input_tokens": 1}
    assert Response({"incomplete_details": {}}).incomplete_reason == "unknown"
    assert Response({}).incomplete_reason is None


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda s: (
        st.lists(s, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "output", "reason"]), s, max_size=3)
    ),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries({"type": st.just("message") | JUNK, "role": st.just("assistant") | JUNK, "content": JUNK})
BODY = st.fixed_dictionaries(
    {}, optional={"output": st.lists(ITEM | JUNK, max_size=3) | JUNK, "usage": JUNK, "incomplete_details": JUNK}
)


@given(BODY)
def test_no_shape_of_body_makes_reading_fail(body: dict[str, Any]) -> None:
    response = Response(body)
    assert isinstance(response.flat_text() + response.joined_text(), str)
    assert all("type" in c for c in response.function_calls())
    assert isinstance(response.incomplete_reason, str | None)
    assert response.usage is not None
