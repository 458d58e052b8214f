"""NLTK's English sentences and words, and the language of a text, for checks that are defined by them.

Owns where NLTK's model is looked for. Invariants: nothing is fetched; a missing package or model is an `InfrastructureError`
that says what to do, never a wrong score; and the language of a text is always the same.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from environments.extras import OURS, install_command
from schemas.errors import InfrastructureError

_MODEL = Path("tokenizers", "punkt_tab", "english")
_CARRIER = "llama_index.core"
_INSIDE_CARRIER = Path("_static", "nltk_cache")
_SYSTEM = ("/usr/share/nltk_data", "/usr/local/share/nltk_data", "/usr/lib/nltk_data", "/usr/local/lib/nltk_data")


def sentences(text: str, data_dir: Path | None) -> list[str]:
    """Sentences by NLTK's English Punkt model. `data_dir`: the worker's; its folder `nltk` is looked in first.

    Raises `TimeoutError` for a text that takes NLTK longer than the limit of its own (5 s, some hundred thousand sentences).
    """
    found: list[str] = _splitter(data_dir).tokenize(text)
    return found


def tokens(text: str, data_dir: Path | None) -> list[str]:
    """What `nltk.word_tokenize` gives: words and punctuation marks, sentence by sentence. Raises as `sentences`."""
    tokenize = functools.cache(_word_tokenizer().tokenize)  # 50 µs each, and a runaway answer repeats itself
    return [token for sentence in sentences(text, data_dir) for token in tokenize(sentence)]


def language(text: str) -> str | None:
    """Code of the text's language by langdetect, seeded; None when it finds nothing to judge by."""
    detector = package("langdetect")
    detector.DetectorFactory.seed = 0
    try:
        return str(detector.detect(text))
    except detector.LangDetectException:
        return None


def package(name: str) -> Any:
    """The module called `name`; raises `InfrastructureError` when its package is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        command = install_command(OURS, "instruction_following")
        raise InfrastructureError(f"this environment needs the package {e.name!r}: {command}", retryable=False) from e


def nltk_folders(data_dir: Path | None) -> list[Path]:
    """Where NLTK's data may lie, the nearest first."""
    named = [Path(p) for p in os.environ.get("NLTK_DATA", "").split(os.pathsep) if p]
    folders = [*named, Path.home() / "nltk_data", *map(Path, _SYSTEM)]
    carrier = importlib.util.find_spec(_CARRIER.partition(".")[0]) and importlib.util.find_spec(_CARRIER)
    if carrier:
        folders += [Path(place) / _INSIDE_CARRIER for place in carrier.submodule_search_locations or ()]
    return [data_dir / "nltk", *folders] if data_dir else folders


@functools.cache
def _word_tokenizer() -> Any:
    return package("nltk.tokenize.destructive").NLTKWordTokenizer()


@functools.cache
def _splitter(data_dir: Path | None) -> Any:
    """Punkt with the model of the first folder that has one, read here: NLTK refuses files that a package manager linked."""
    punkt = package("nltk.tokenize.punkt")
    folders = nltk_folders(data_dir)
    model = next((f / _MODEL for f in folders if (f / _MODEL / "ortho_context.tab").is_file()), None)
    if model is None:
        raise InfrastructureError(
            "NLTK's sentence model 'punkt_tab' (English) is not on this machine: python -m nltk.downloader punkt_tab, or "
            f"put it as {_MODEL} into one of {', '.join(map(str, folders))}",
        )
    parameters = punkt.PunktParameters()
    parameters.abbrev_types = set(_lines(model / "abbrev_types.txt"))
    parameters.sent_starters = set(_lines(model / "sent_starters.txt"))
    parameters.collocations = {tuple(line.split("\t")) for line in _lines(model / "collocations.tab")}
    contexts = (line.split("\t") for line in _lines(model / "ortho_context.tab"))
    parameters.ortho_context = defaultdict(int, {word: int(flags) for word, flags in contexts})
    return punkt.PunktSentenceTokenizer(parameters)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()
