"""workplace_assistant: what the page says and the cases do not show, state on the wire, time and memory on hostile answers."""

from __future__ import annotations

import json
import math
import shutil
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.agents.playing import play
from environments.context import Context
from environments.registry import Registry
from environments.testing import EnvironmentHarness, function_call, response
from environments.workplace_assistant.databases import Base, Databases
from environments.workplace_assistant.environment import (
    EXAMPLE,
    SCHEMAS,
    TOOLS,
    Changes,
    WorkplaceAssistant,
    WorkplaceConfig,
    replay,
)
from schemas.errors import DataError, InfrastructureError
from tests.conformance.cases import directory

ROWS = [json.loads(line) for line in (EXAMPLE.parent / "example.jsonl").read_text("utf-8").splitlines()]
BASE = Base.load(EXAMPLE)


def harness(**row: Any) -> EnvironmentHarness:
    made = EnvironmentHarness(WorkplaceAssistant())
    made.seed({**ROWS[0], "ground_truth": [], **row})
    return made


def call(on: EnvironmentHarness, name: str, /, **arguments: Any) -> Any:
    reply = on.call(name, json.dumps(arguments))
    assert reply.status == 200
    return json.loads(reply.output)["output"]


def made(*calls: tuple[str, Any]) -> list[dict[str, str]]:
    return [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row["id"]))
def test_the_examples_are_solved_by_their_own_calls_and_by_nothing_less(row):
    binding = Registry.load().binding(None, row["agent_ref"]["name"])
    on = EnvironmentHarness(binding)
    assert [t["name"] for t in on.seed(row).tools] == list(TOOLS)
    calls = [function_call(c["name"], c["arguments"], call_id=f"c{i}") for i, c in enumerate(row["ground_truth"])]
    final = play(binding.agent, on, *(response(c) for c in calls), "Done.")
    assert not [i["output"] for i in final["output"] if i["type"] == "function_call_output" and "not found" in i["output"]]
    assert on.verify(final).reward == 1.0
    assert on.verify(response(*calls[:-1])).reward == 0.0
    changes_once = calls[0]["name"].rpartition("_")[0].endswith(("update", "delete"))  # doing it again changes nothing
    assert on.verify(response(*calls, calls[0])).reward == float(changes_once)


def test_there_are_27_tools_with_schemas_and_rows_with_their_own_keep_them():
    assert len(SCHEMAS) == len(TOOLS) == 27
    assert all(s["description"] and set(s["parameters"]["required"]) <= set(s["parameters"]["properties"]) for s in SCHEMAS)
    own = {"input": "?", "tools": [SCHEMAS[0]]}
    assert EnvironmentHarness(WorkplaceAssistant()).seed({**ROWS[0], "responses_create_params": own}).tools == ()


def test_schemas_have_the_arguments_of_the_references():
    cases = directory()
    found = cases.parent / "data" / "workplace_assistant" / "tools.json" if cases else None
    if found is None or not found.is_file():
        pytest.skip("no reference schemas on this machine")
    theirs = {t["name"]: t["parameters"] for t in json.loads(found.read_text("utf-8"))}
    ours = {s["name"]: s["parameters"] for s in SCHEMAS}
    assert ours.keys() == theirs.keys()
    for name, parameters in theirs.items():
        kinds = {k: p["type"] for k, p in parameters["properties"].items()}
        assert {k: p["type"] for k, p in ours[name]["properties"].items()} == kinds, name
        assert sorted(ours[name]["required"]) == sorted(parameters["required"]), name


def test_a_row_without_its_fields_is_refused():
    for name in ("ground_truth", "id", "category", "environment_name"):
        with pytest.raises(DataError, match=name):
            EnvironmentHarness(WorkplaceAssistant()).seed({k: v for k, v in ROWS[0].items() if k != name})


def test_without_databases_a_rollout_fails_at_its_start_and_says_what_to_do(tmp_path):
    row = {k: v for k, v in ROWS[0].items() if k != "databases"}
    for context in (Context(), Context(data_dir=tmp_path)):
        with pytest.raises(InfrastructureError, match="rollstream environment fetch workplace_assistant") as failure:
            EnvironmentHarness(WorkplaceAssistant(), context=context).seed(row)
        assert not failure.value.retryable
    shutil.copytree(EXAMPLE, tmp_path / "workplace_assistant")
    EnvironmentHarness(WorkplaceAssistant(), context=Context(data_dir=tmp_path)).seed(row)
    EnvironmentHarness(WorkplaceAssistant(WorkplaceConfig(databases=EXAMPLE))).seed(row)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("emails.csv", b"a,b\n1,2\n", "must have the columns email_id"),
        ("emails.csv", b"", "not a CSV file with a header"),
        ("emails.csv", b"\xff", "not UTF-8"),
        ("emails.csv", None, "cannot read"),
        ("email_addresses.csv", None, "cannot read"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, name, content, message):
    shutil.copytree(EXAMPLE, tmp_path / "d")
    (tmp_path / "d" / name).unlink()
    if content is not None:
        (tmp_path / "d" / name).write_bytes(content)
    with pytest.raises(InfrastructureError, match=message) as failure:
        Base.load(tmp_path / "d")
    assert name in str(failure.value)


def test_a_rollout_is_not_continued_on_other_databases(tmp_path):
    folder = tmp_path / "workplace_assistant"
    shutil.copytree(EXAMPLE, folder)
    on = EnvironmentHarness(WorkplaceAssistant(), context=Context(data_dir=tmp_path))
    on.seed({k: v for k, v in ROWS[0].items() if k != "databases"})
    assert call(on, "company_directory_find_email_address", name="bo") == ["bo.lindgren@larkfield.example"]
    with (folder / "email_addresses.csv").open("a") as file:
        file.write("\nnew@larkfield.example")
    with pytest.raises(InfrastructureError, match="other databases"):
        call(on, "company_directory_find_email_address", name="bo")


def test_a_call_before_seeding_is_told_so():
    on = harness()
    on.state_json = Changes().model_dump_json()
    reply = on.call("email_search_emails")
    assert (reply.status, json.loads(reply.output)["detail"][:23]) == (400, "Session not initialized")


@pytest.mark.parametrize("name", ["verify", "seed_session", "email_next_id", "email__mail", "email___init__", "__class__", ""])
def test_only_tools_can_be_called(name):
    assert call(harness(), name) == f"Error executing tool '{name}': '{name}'"


def test_reads_leave_the_state_as_it_was_and_changes_travel_small():
    on = harness()
    before = on.state_json
    for name, arguments in [
        ("email_search_emails", {"query": "till"}),
        ("calendar_search_events", {"query": "stand"}),
        ("email_delete_email", {"email_id": "nothing"}),
    ]:
        call(on, name, **arguments)
    assert on.state_json == before
    assert len(before or "") < 60
    for i in range(6):
        call(on, "customer_relationship_manager_update_customer", customer_id=f"{i:08d}", field="status", new_value="Won")
    assert len(on.state_json or "") < 400
    call(on, "email_send_email", recipient="bo.lindgren@larkfield.example", subject="Hi", body="Hello")
    call(on, "email_delete_email", email_id="50")
    assert "Hello" not in (on.state_json or "")


def test_session_lengths_become_numbers_after_the_average_over_all_days():
    on = harness()
    visitor = BASE.visits[0]
    seconds = str(visitor["session_duration_seconds"])
    shown = call(on, "analytics_get_visitor_information_by_id", visitor_id=visitor["visitor_id"])[0]
    assert shown["session_duration_seconds"] == seconds
    call(on, "analytics_get_average_session_duration", time_min="2023-11-01")
    again = call(on, "analytics_get_visitor_information_by_id", visitor_id=visitor["visitor_id"])[0]
    assert again == shown
    call(on, "analytics_get_average_session_duration")
    last = call(on, "analytics_get_visitor_information_by_id", visitor_id=visitor["visitor_id"])[0]
    assert last["session_duration_seconds"] == float(seconds)


@pytest.mark.parametrize(
    ("name", "arguments", "reply"),
    [
        ("email_search_emails", {"page_size": 0}, "Error searching emails: integer division or modulo by zero"),
        ("email_search_emails", {"query": "zzz", "date_min": "whenever"}, "No emails found."),
        ("email_search_emails", {"query": 5}, "Error searching emails: 'int' object has no attribute 'lower'"),
        ("email_forward_email", {"email_id": "00000011", "recipient": "nobody"}, "Invalid recipient email address."),
        ("email_reply_email", {"email_id": "1", "body": "x"}, "Email not found."),
        ("calendar_search_events", {"query": "zzz", "page_size": 0}, "No events found."),
        ("calendar_search_events", {"time_max": "2023-13-01"}, "Invalid time_max format. Expected YYYY-MM-DD HH:MM:SS."),
        ("calendar_create_event", {"event_name": "x", "participant_email": "a@b.c", "event_start": "2023-12-01", "duration": "3.5"}, "Invalid duration format. Expected a number of minutes."),
        ("calendar_create_event", {"event_name": "x", "participant_email": "a@b.c", "event_start": "2023-12-01", "duration": 2.5}, "00000036"),
        ("calendar_create_event", {"event_name": "x"}, "Participant email not provided."),
        ("calendar_create_event", {"event_name": "x", "participant_email": "y", "event_start": ""}, "Event start not provided."),
        ("project_management_search_tasks", {"assigned_to_email": "ruth.feldmann@larkfield.example\n", "board": "zzz"}, []),
        ("project_management_update_task", {"task_id": "x", "field": "board", "new_value": "UX"}, "Board not valid. Please choose from: 'Back end', 'Front end', 'Design'."),
        ("customer_relationship_manager_search_customers", {"follow_up_by_max": "2023-12-01"}, "No customers found."),
        ("analytics_create_plot", {"time_min": "2023-11-01"}, "End date not provided."),
    ],
)  # fmt: skip
def test_replies(name, arguments, reply):
    assert call(harness(), name, **arguments) == reply


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("calendar_search_events", {"query": "("}, "missing ), unterminated subpattern"),
        ("calendar_search_events", {"query": "stand", "page_size": 0}, "integer division or modulo by zero"),
        ("calendar_search_events", {"time_min": "2023-11-01T00:00:00Z"}, "offset-naive and offset-aware"),
        ("customer_relationship_manager_search_customers", {"status": "x", "page_size": 0}, "integer division"),
        ("company_directory_find_email_address", {"name": "(" * 5_000 + ")" * 5_000}, ""),
        ("email_delete_email", {"email_id": ["00000011"]}, "Lengths must match"),
        (
            "email_send_email",
            {"recipient": "a@b.c", "subject": [[[]]], "body": "x", "cc": 1},
            "unexpected keyword argument 'cc'",
        ),
    ],
)
def test_whatever_goes_wrong_inside_a_tool_is_told(name, arguments, part):
    text = call(harness(), name, **arguments)
    assert text.startswith(f"Error executing tool '{name}': ")
    assert part in text


def test_a_customer_without_a_cell_breaks_searches_in_that_column_only():
    on = harness()
    call(on, "customer_relationship_manager_add_customer", customer_name="N", assigned_to_email="a@b.c", status="Lead")
    assert "Error executing" in call(on, "customer_relationship_manager_search_customers", product_interest="Hard")
    assert call(on, "customer_relationship_manager_search_customers", customer_name="^N$")["pagination"]["total_customers"] == 1


def test_odd_text_and_deep_nesting_do_not_break_the_state():
    on = harness()
    lone = '{"recipient": "a@b.c", "subject": "\\ud800", "body": "\\udfff\u00e9\U0001f600"}'
    assert json.loads(on.call("email_send_email", lone).output)["output"] == "Email sent successfully."
    assert call(on, "email_get_email_information_by_id", email_id="50", field="subject") == {"subject": "\\ud800"}
    deep = '{"recipient": "a@b.c", "subject": "x", "body": ' + "[" * 300 + "]" * 300 + "}"
    assert "nested too deep" in on.call("email_send_email", deep).output
    big = '{"recipient": "a@b.c", "subject": "x", "body": 1' + "0" * 400 + "}"
    assert "sent" in on.call("email_send_email", big).output
    assert call(on, "email_get_email_information_by_id", email_id="51", field="body") == {"body": 10**400}


def test_patterns_that_backtrack_end_in_time():
    on = harness()
    call(on, "calendar_create_event", event_name="a" * 5_000 + "!", participant_email="a@b.c", event_start="now", duration="1")
    start = time.thread_time()
    assert "too long" in call(on, "calendar_search_events", query="(a|aa)+$")
    assert time.thread_time() - start < 10


def verify(calls: list[dict[str, str]], truth: list[dict[str, str]], **config: Any) -> float:
    on = EnvironmentHarness(WorkplaceAssistant(WorkplaceConfig(**config)))
    on.seed({**ROWS[0], "ground_truth": truth})
    return on.verify(response(*(function_call(c["name"], c["arguments"]) for c in calls))).reward


TASK = {
    "task_name": "T",
    "assigned_to_email": "bo.lindgren@larkfield.example",
    "list_name": "Backlog",
    "due_date": "x",
    "board": "Design",
}
SEND = ("email_send_email", {"recipient": "a@b.c", "subject": "S", "body": "B"})
CREATE = ("project_management_create_task", TASK)
CUSTOMER = (
    "customer_relationship_manager_add_customer",
    {"customer_name": "C", "assigned_to_email": "a@b.c", "status": "Lead"},
)
EVENT = (
    "calendar_create_event",
    {"event_name": "E", "participant_email": "a@b.c", "event_start": "2023-12-01", "duration": "5"},
)
DELETE_MAIL = ("email_delete_email", {"email_id": "00000011"})
DELETE_TASK = ("project_management_delete_task", {"task_id": "00000004"})
DELETE_CUSTOMER = ("customer_relationship_manager_delete_customer", {"customer_id": "00000001"})
DELETE_EVENT = ("calendar_delete_event", {"event_id": "00000005"})


@pytest.mark.parametrize(
    ("add", "delete", "labels_differ"),
    [(SEND, DELETE_MAIL, True), (CREATE, DELETE_TASK, True), (CUSTOMER, DELETE_CUSTOMER, True), (EVENT, DELETE_EVENT, False)],
)
def test_the_order_of_adding_and_deleting_shows_in_the_labels_but_for_events(add, delete, labels_differ):
    one, other = made(add, delete), made(delete, add)
    assert verify(one, other) == (0.0 if labels_differ else 1.0)
    assert verify(one, other, row_labels=False) == 1.0
    assert verify(one, one) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "reward"),
    [
        ([SEND, ("email_delete_email", {"email_id": "50"})], [], 1.0),
        ([DELETE_MAIL, SEND, ("email_delete_email", {"email_id": "50"})], [DELETE_MAIL], 0.0),
        ([EVENT, ("calendar_delete_event", {"event_id": "00000036"})], [], 1.0),
        ([("email_send_email", {**SEND[1], "subject": 1})], [("email_send_email", {**SEND[1], "subject": 2})], 1.0),
        ([("email_send_email", {**SEND[1], "subject": 1})], [("email_send_email", {**SEND[1], "subject": "1"})], 0.0),
        ([("project_management_update_task", {"task_id": "00000004", "field": "task_name", "new_value": "DESCRIBE the colours of the lines"})], [], 1.0),
        ([("customer_relationship_manager_update_customer", {"customer_id": "00000001", "field": "customer_name", "new_value": ["cleo holm"]})], [], 1.0),
        ([("customer_relationship_manager_update_customer", {"customer_id": "00000001", "field": "customer_name", "new_value": ["a", "b"]})], [], 1.0),
        ([("customer_relationship_manager_update_customer", {"customer_id": "00000001", "field": "customer_name", "new_value": {"a": 1}})], [], 0.0),
        ([("project_management_update_task", {"task_id": "00000004", "field": "task_id", "new_value": 7}), CREATE], [("project_management_update_task", {"task_id": "00000004", "field": "task_id", "new_value": 7})], 1.0),
        ([("email_send_email", None), ("email_send_email", [1]), ("nothing", {})], [], 1.0),
    ],
)  # fmt: skip
def test_what_counts_as_equal(one, other, reward):
    assert verify(made(*one), made(*other)) == reward


def test_a_truth_without_usable_entries_means_no_change():
    for truth in ("text", [{}], [{"name": "email_send_email"}], [{"name": "x", "arguments": "{"}]):
        on = harness(ground_truth=truth)
        assert on.verify(response("Nothing to do.")).reward == 1.0


ARGUMENT = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.text(max_size=6)
    | st.lists(st.text(max_size=2), max_size=2)
)
KNOWN = st.sampled_from(
    ["00000001", "00000005", "00000011", "2023-11-20", "status", "board", "a@b.c", "Backlog", "Design", "x"]
)
CALLS = st.lists(
    st.sampled_from(sorted(TOOLS)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.fixed_dictionaries({}, optional=dict.fromkeys(next(s for s in SCHEMAS if s["name"] == name)["parameters"]["properties"], KNOWN | ARGUMENT)),
        )
    ),
    max_size=6,
)  # fmt: skip


@given(CALLS)
def test_live_calls_and_replay_reach_the_same_databases_and_never_fail(calls):
    """Live the state goes through JSON after each call; that must not change what the calls do."""
    calls = [
        (name, {k: v for k, v in a.items() if v is not None and not (isinstance(v, float) and math.isnan(v))})
        for name, a in calls
    ]
    on = harness()
    for name, arguments in calls:
        assert on.call(name, json.dumps(arguments)).status == 200
    live = Databases.of(BASE, on.state.changes)
    again = replay(BASE, made(*calls), 0.0)
    assert live.same_as(again)
    assert again.same_as(live)


def test_a_megabyte_of_calls_is_scored_in_bounded_time():
    start = time.thread_time()
    assert verify(made(*[SEND, ("email_delete_email", {"email_id": "50"})] * 6_000), []) == 1.0
    assert verify(made(*[CREATE] * 5_000), []) == 0.0
    assert verify(made(*[("project_management_create_task", {**TASK, "assigned_to_email": "x@y.z"})] * 5_000), []) == 1.0
    assert verify(made(("email_send_email", {**SEND[1], "body": "x" * 1_000_000})), []) == 0.0
    assert verify(made(("calendar_create_event", {**EVENT[1], "event_start": "1 " * 500_000})), []) == 1.0
    assert time.thread_time() - start < 15
