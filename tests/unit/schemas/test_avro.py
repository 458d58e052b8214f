"""The stored schemas: the newest is the class, and every one of them can still be read."""

import copy
import dataclasses
import io
import json
import random
from importlib import resources

import fastavro
import fastavro.utils
import pytest

from schemas import avro, codec
from schemas.errors import DataError
from schemas.events import EVENTS, Prompt

STORED = [(cls, number) for cls in EVENTS for number in avro.versions(avro.file_stem(cls))]


def single_object(schema, datum):
    """Encoded by fastavro alone, with the fingerprint taken from the schema file."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), datum)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")) + out.getvalue()


def agrees(datum, event):
    """Every field of the datum that the class still has, has its value."""
    if isinstance(datum, dict):
        names = {f.name for f in dataclasses.fields(event)}
        return all(agrees(v, getattr(event, k)) for k, v in datum.items() if k in names)
    if isinstance(datum, list):
        return len(datum) == len(event) and all(map(agrees, datum, event))
    return datum == event


@pytest.mark.parametrize("cls", EVENTS)
def test_the_newest_stored_version_is_the_class(cls):
    """Fails when a class changed: run `python -m schemas.avro`, which writes the next version, and commit the file."""
    stored = avro.versions(avro.file_stem(cls))
    assert list(stored) == list(range(1, len(stored) + 1))
    assert list(stored.values())[-1] == avro.schema_of(cls)


@pytest.mark.parametrize(("cls", "number"), STORED, ids=lambda v: getattr(v, "__name__", v))
def test_every_stored_version_can_be_read(cls, number):
    schema = avro.versions(avro.file_stem(cls))[number]
    random.seed(number)
    for datum in fastavro.utils.generate_many(copy.deepcopy(schema), 20):
        if cls is Prompt:
            datum["run_id"] = "run-1"  # the one field with a rule of its own
        assert agrees(datum, codec.decode(single_object(schema, datum), cls))


def test_no_file_is_left_without_a_class():
    stems = {avro.file_stem(cls) for cls in EVENTS}
    files = [f.name for f in resources.files("schemas").joinpath("avsc").iterdir()]
    assert {name.split(".v")[0] for name in files} == stems


@pytest.fixture
def history(monkeypatch):
    """Gives `Prompt` an earlier version of the test's choice, and the codec no memory of the real ones."""

    def pretend(earlier):
        real = avro.versions
        monkeypatch.setattr(
            avro, "versions", lambda name: {1: earlier, 2: avro.schema_of(Prompt)} if name == "prompt" else real(name)
        )
        monkeypatch.setattr(codec, "_READERS", {})
        monkeypatch.setattr(codec, "_WRITERS", {})

    return pretend


def without(schema, field):
    return {**schema, "fields": [f for f in schema["fields"] if f["name"] != field]}


def test_a_field_added_with_a_default_reads_old_events(history):
    earlier = without(avro.schema_of(Prompt), "repeats")
    history(earlier)
    names = [f["name"] for f in earlier["fields"]]
    datum = dict.fromkeys(names) | {"row": b"{}", "run_id": "old", "first_rollout": 4, "attempt": 0}
    assert codec.decode(single_object(earlier, datum), Prompt) == Prompt(b"{}", run_id="old", first_rollout=4, repeats=1)
    assert codec.decode(codec.encode(Prompt(b"{}", repeats=3)), Prompt).repeats == 3  # the newest is what is written


def test_a_field_added_without_a_default_cannot_read_old_events(history):
    """What the test over stored versions is there to catch."""
    earlier = without(avro.schema_of(Prompt), "row")
    history(earlier)
    names = [f["name"] for f in earlier["fields"]]
    datum = dict.fromkeys(names) | {"run_id": "old", "repeats": 1, "first_rollout": 0, "attempt": 0}
    with pytest.raises((DataError, fastavro.schema.SchemaParseException, fastavro.read.SchemaResolutionError)):
        codec.decode(single_object(earlier, datum), Prompt)


def test_a_class_that_changed_gets_a_new_file_and_no_other(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(avro, "__file__", str(tmp_path / "avro.py"))
    (tmp_path / "avsc").mkdir()
    older = without(avro.schema_of(Prompt), "repeats")
    real = avro.versions
    monkeypatch.setattr(avro, "versions", lambda name: {1: older} if name == "prompt" else real(name))
    avro.main()
    assert [p.name for p in (tmp_path / "avsc").iterdir()] == ["prompt.v2.avsc"]
    assert json.loads((tmp_path / "avsc" / "prompt.v2.avsc").read_text()) == avro.schema_of(Prompt)
    assert "prompt.v2.avsc" in capsys.readouterr().out


def test_a_class_that_returns_to_an_old_form_is_written_in_that_form(history, tmp_path, monkeypatch):
    history(without(avro.schema_of(Prompt), "repeats"))  # version 2 is the class
    stored = avro.versions("prompt")
    real = avro.versions
    monkeypatch.setattr(avro, "versions", lambda name: {1: stored[2], 2: stored[1]} if name == "prompt" else real(name))
    monkeypatch.setattr(avro, "__file__", str(tmp_path / "avro.py"))
    (tmp_path / "avsc").mkdir()
    avro.main()
    assert [p.name for p in (tmp_path / "avsc").iterdir()] == ["prompt.v3.avsc"]
    monkeypatch.setattr(
        avro, "versions", lambda name: {1: stored[2], 2: stored[1], 3: stored[2]} if name == "prompt" else real(name)
    )
    assert codec.decode(codec.encode(Prompt(b"{}", repeats=3)), Prompt).repeats == 3


def test_a_type_without_an_avro_form_is_refused():
    @dataclasses.dataclass
    class Odd:
        when: complex

    with pytest.raises(TypeError, match="complex"):
        avro.schema_of(Odd)


@pytest.mark.parametrize(("name", "stem"), [("ToolCalls", "tool-calls"), ("Prompt", "prompt")])
def test_file_stems(name, stem):
    assert avro.file_stem(type(name, (), {})) == stem
