"""A real model server on the CPU: mlx-lm with a two-layer Llama of random weights, made here. Nothing is downloaded.

Run by an interpreter that has `mlx-lm` (the dependency group `real-engine`), which need not be that of the tests:

    python tiny_engine.py make FOLDER           writes weights, tokenizer and chat template
    python tiny_engine.py serve FOLDER PORT     serves it (Chat Completions and text completions) until it is killed
    python tiny_engine.py score FOLDER < JSON   log-probabilities of [prompt ids, generated ids, allowed ids] triples

A byte is a token; with the two special ones the vocabulary has 258.
"""

import json
import sys
from pathlib import Path

BOS, EOS = "<s>", "</s>"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 258,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make(folder: Path) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models.llama import Model, ModelArgs
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    mx.random.seed(7)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(Model(ModelArgs.from_dict(CONFIG)).parameters())))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos_token": BOS, "eos_token": EOS, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, "chat_template": TEMPLATE}))


def serve(folder: str, port: str) -> None:
    from mlx_lm import server

    sys.argv = ["mlx_lm.server", "--model", folder, "--host", "127.0.0.1", "--port", port, "--log-level", "WARNING"]
    server.main()


def score(folder: str) -> None:
    import mlx.core as mx
    from mlx_lm.utils import load_model

    model, _ = load_model(Path(folder))
    found = []
    for prompt, generated, allowed in json.load(sys.stdin):
        logits = model(mx.array([prompt + generated]))[0, len(prompt) - 1 : -1].astype(mx.float32)
        bias = mx.full((CONFIG["vocab_size"],), -1e9)
        bias[mx.array(allowed)] = 0.0
        logits += bias
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        found.append([logprobs[i, token].item() for i, token in enumerate(generated)])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    {"make": lambda a: make(Path(a)), "serve": serve, "score": score}[sys.argv[1]](*sys.argv[2:])
