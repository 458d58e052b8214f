"""Who a rollout is (platform.md A8), record keys, partitions and headers."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import headers, topics
from schemas.errors import FailureClass, RolloutError
from schemas.identity import MAX_INDEX, Place, RolloutRef, is_id, is_index, task_id_at, task_index_at
from schemas.topics import Topics, partition_of


@pytest.mark.parametrize(
    ("ref", "rollout_id"),
    [
        (RolloutRef("r", "t", 5, 2), "5-2"),
        (RolloutRef("r", "t", 5, 2, attempt=1), "5-2-a1"),
        (RolloutRef("r", "t", 5, 2, explicit_id="mine"), "mine"),
        (RolloutRef("r", "t", 5, 2, attempt=12, explicit_id="mine"), "mine-a12"),
    ],
)
def test_rollout_ids(ref, rollout_id):
    assert ref.rollout_id == rollout_id
    assert is_id(ref.rollout_id)


@pytest.mark.parametrize("text", ["a", "Z9", "0", "a.b_c-d", "x" * 200])
def test_ids_that_may_be(text):
    assert is_id(text)


@pytest.mark.parametrize("text", ["", ".a", "_a", "-a", "a b", "a/b", "a\n", "\na", "é", "a\0", "..", "x" * 201])
def test_ids_that_may_not_be(text):
    assert not is_id(text)


@given(st.text(max_size=30))
def test_an_id_is_safe_as_one_part_of_a_path(text):
    if is_id(text):
        assert text not in (".", "..")
        assert not set(text) & set("/\\\0\n")


@pytest.mark.parametrize("value", [-1, MAX_INDEX + 1, 1.0, "1", True, None])
def test_indices_that_may_not_be(value):
    assert not is_index(value)


def test_attempts_of_a_rollout_share_its_key_and_rollouts_of_a_task_its_task_key():
    first, again, other = RolloutRef("r", "t", 5, 2), RolloutRef("r", "t", 5, 2, attempt=1), RolloutRef("r", "t", 5, 3)
    assert first.key == again.key == b"r/5-2"
    assert first.key != other.key
    assert first.task_key == again.task_key == other.task_key == b"r/t"


@given(st.integers(0, 8191), st.integers(0, 2**40 - 1), st.integers(0, 8191), st.integers(0, 2**40 - 1))
def test_places_and_task_indices_are_one_to_one_and_exact_in_any_json_reader(p1, o1, p2, o2):
    one, two = Place("t", p1, o1), Place("t", p2, o2)
    assert (task_index_at(one) == task_index_at(two)) == (one == two)
    assert int(float(task_index_at(one))) == task_index_at(one)
    assert is_index(task_index_at(one))


def test_a_place_reads_as_a_person_would_say_it():
    assert str(Place("rollstream.turns", 3, 42)) == "rollstream.turns/3/42"
    assert task_id_at(Place("rollstream.prompts", 3, 42)) == "rollstream.prompts-3-42"


@pytest.mark.parametrize(("key", "crc"), [(b"", 0), (b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43), (b"abc", 0x352441C2)])
def test_partitions_are_those_of_librdkafkas_consistent_partitioner(key, crc):
    """The values are those of the CRC-32/ISO-HDLC check and of common test vectors, not computed here."""
    assert zlib.crc32(key) == crc
    for partitions in (1, 7, 12, 100):
        assert partition_of(key, partitions) == crc % partitions


@given(st.binary(max_size=20), st.integers(1, 200))
def test_a_partition_exists(key, partitions):
    assert 0 <= partition_of(key, partitions) < partitions


def test_one_prefix_moves_a_whole_pipeline():
    declared = {name for name, _, _ in Topics("team.a", 6).declare()}
    stages = ("prompts", "turns", "tool-calls", "trajectories", "scored-rollouts", "failures", "control")
    assert declared == {f"team.a.{stage}" for stage in stages}
    assert Topics("").name(topics.TURNS) == "turns"
    assert Topics("p").group("agent") == "p.agent"
    assert Topics("").group("agent", "run-1") == "agent.run-1"


def test_control_is_compacted_on_one_partition_and_the_rest_expire():
    for name, partitions, config in Topics("p", 6).declare():
        if name == "p.control":
            assert partitions == 1
            assert config["cleanup.policy"] == "compact"
            assert "retention.ms" not in config
        else:
            assert partitions == 6
            assert int(config["retention.ms"]) > 0
        assert int(config["max.message.bytes"]) > topics.INLINE_LIMIT


def test_the_largest_prompt_fits_its_topic_and_the_failures():
    for spec in (topics.PROMPTS, topics.FAILURES):
        assert spec.max_message_bytes > topics.MAX_PROMPT_BYTES


def test_headers_name_the_run_and_the_rollout():
    found = headers.of(RolloutRef("run", "t", 1, 0, attempt=2), (headers.OUTCOME, b"scored"))
    assert found == [("rs-run", b"run"), ("rs-rollout", b"1-0-a2"), ("rs-outcome", b"scored")]
    assert headers.value(found, headers.OUTCOME) == b"scored"
    assert headers.value(found, headers.TRACE) is None
    assert headers.value([("k", b"first"), ("k", b"second")], "k") == b"first"


def test_every_failure_class_can_be_raised():
    """The taxonomy is closed: each class has an exception, and none has a class outside it."""

    def family(cls):
        return {cls, *(c for sub in cls.__subclasses__() for c in family(sub))}

    assert {cls.failure_class for cls in family(RolloutError)} == set(FailureClass)


def test_an_error_says_whether_another_attempt_could_help():
    assert RolloutError("x").retryable
    assert not RolloutError("x", retryable=False).retryable
    assert RolloutError("x", detail="why").detail == "why"
