"""A tokenizer's own chat template on our side (platform.md D3), with a tokenizer made here: a byte is a token."""

import json

import orjson
import pytest

from rollstream.scripted import ScriptedModel
from schemas.errors import DataError, InfrastructureError, ModelError
from services.models.client import PolicyClient
from services.models.endpoint import ModelEndpoint
from services.models.template import ChatTemplate

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}{{ mood | default('') }}"
)


def written(folder, template=TEMPLATE):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": {"content": "<s>"}, "chat_template": [{"name": "default", "template": template}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config if template else {}))
    return folder


def client_at(model, options):
    return PolicyClient(ModelEndpoint(base_url=model.base_url, name="m", options=options))


def test_a_conversation_is_rendered_and_tokenized(tmp_path):
    template = ChatTemplate.load(written(tmp_path))
    messages = [{"role": "user", "content": "é <b>"}]
    assert template.render(messages) == "<s><user>é <b><assistant>"
    assert template.render(messages, [{"name": "<t>"}], {"mood": "!", "add_generation_prompt": False}) == (
        '<s><user>é <b>[{"name": "<t>"}]!'
    )
    assert template.render([{"role": "assistant", "content": None}]) == "<s><assistant><assistant>"
    ids = template.ids({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]})
    assert len(ids) == 1 + len("<user>a<assistant>")
    assert ids[0] == 256


def test_a_template_that_refuses_is_a_data_error(tmp_path):
    template = ChatTemplate.load(written(tmp_path))
    with pytest.raises(DataError, match="no such role"):
        template.render([{"role": "bad"}])


def test_a_template_cannot_leave_its_sandbox(tmp_path):
    template = ChatTemplate.load(written(tmp_path, "{{ messages.__class__.__mro__ }}"))
    with pytest.raises(DataError, match="SecurityError"):
        template.render([])


def test_what_cannot_be_loaded_says_so(tmp_path):
    with pytest.raises(InfrastructureError, match=r"tokenizer\.json"):
        ChatTemplate.load(tmp_path)
    with pytest.raises(InfrastructureError, match="cannot be read"):
        ChatTemplate.load(written(tmp_path, "{% if %}"))


async def test_a_text_completion_of_a_rendered_conversation(tmp_path):
    """D3: `render_chat_template`, with tools, and template arguments that are used up here."""
    made = {
        "engine": "completions",
        "render_chat_template": True,
        "tokenizer": written(tmp_path),
        "chat_template_kwargs": {"mood": "!"},
    }
    request = {"model": "m", "input": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}
    async with ScriptedModel(record=True) as model, client_at(model, made) as client:
        await client.create(orjson.dumps(request), idempotency_key="k")
    assert json.loads(model.seen[0].body) == {
        "model": "m",
        "prompt": "<s><assistant>a<user>b<assistant>!",
        "add_special_tokens": False,
    }


async def test_a_tokenizer_without_a_template_stops_the_start(tmp_path):
    made = {"engine": "completions", "render_chat_template": True, "tokenizer": written(tmp_path, "")}
    with pytest.raises(InfrastructureError, match="no chat template"):
        await PolicyClient(ModelEndpoint(base_url="http://127.0.0.1:9/v1", name="m", options=made)).start()


async def test_a_prompt_rendered_here_must_be_what_the_engine_counted(tmp_path):
    """D8: the engine's template differs from ours by the first token, so its count does: an error, not a guess."""
    made = {"engine": "chat", "return_token_id_information": True, "tokenizer": written(tmp_path)}
    async with ScriptedModel() as model, client_at(model, made) as client:
        with pytest.raises(ModelError, match="by the engine's count"):
            await client.create(orjson.dumps({"model": "m", "input": "a"}), idempotency_key="k")
