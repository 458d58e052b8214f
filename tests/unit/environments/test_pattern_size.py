"""How large patterns may become: estimates against what the compilers really take, and what is refused."""

import contextlib
import json
import re
import subprocess
import sys
import threading
import time

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.common import searches
from environments.common.pattern_size import MAX_DEPTH, OversizeError, size_of
from environments.common.searches import SearchTimeoutError, compiled, last_match

NESTED = "(?:(?:(?:(?:a{100}){100}){100}){100})"
REFUSED = {
    "nested repeats": NESTED,
    "one repeat": "a{1000000}",
    "at least": "(?:(?:a{100,}){100,}){100,}",
    "captures": "(?:(a){1000}){1000}",
    "behind": "(?<=a{1000000})b",
    "alternatives": "(?:" + "|".join(f"ab{i}" for i in range(300)) + "){1000}",
    "sets beyond Latin-1": "[A-\U0010ffff]" * 200,
    "escaped sets": r"[A-\uffff]" * 200,
    "depth": "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1),
    "length": "a" * 4_097,
    "digits": "(?:a{" + "9" * 3_000 + "})",
    "hidden in verbose form": "(?x)(?:a{1000}#[\n){1000}#]",
}
HIDDEN = {  # what `regex` alone would read as repeats of a group
    "fuzzy": "(?:a{1000}){e<=1}{1000}",
    "class": "[[:alpha:][](?:(?:a{1000}){1000}x]",
    "comment": r"(?#\)[)(?:(?:a{1000}){1000}]",
}


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_what_would_be_too_large_is_refused_at_once(source):
    began = time.process_time()
    with pytest.raises(OversizeError):
        size_of(source)
    assert compiled(source, re.IGNORECASE) is None
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_nothing_is_hidden_in_what_only_one_library_knows(source):
    began = time.process_time()
    compiled(source)
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("(?:foo){e<=1}", "foo{e<=1}"),
        ("[[:alpha:]]", "a]"),
        ("a{,}b", "aab"),
        ("a{b", "a{b"),
        (r"\{a}[]x]", "{a}]"),
        (r"\N{DIGIT ONE}{2}", "11"),
        ("(?#a)b{2}", "bb"),
        (r"(?P<a>x)(?P=a)(?(a)y|z)", "xxy"),
        ("(?i:B)(?x: b )", "bb"),
    ],
)
def test_both_libraries_read_the_same(source, text):
    pattern = compiled(source)
    expected = re.compile(source).search(text)
    found = last_match(pattern, text, 1.0)
    assert expected is not None
    assert (found[0], found.span()) == (expected[0], expected.span())


@pytest.mark.parametrize(
    "source", [r"\\boxed\{([A-D])\}", "答案[：:]\\s*[（(]?([A-D])[）)]?", "[一-龥]{2,20}年", r"(?:\w+\s){0,500}end"]
)
def test_ordinary_patterns_are_small(source):
    assert size_of(source).nodes < 1_000
    assert compiled(source) is not None


ATOMS = st.one_of(
    st.sampled_from(
        ["a", ".", r"\d", r"\b", "é", r"\u4e00", "[a-z]", "[^ab]", "[一-龥]", r"[\w\u4e00-\u9fff]", "[A-\U0010ffff]", "^"]
    ),
    st.lists(st.characters(exclude_characters="[]\\^-&~|"), min_size=1, max_size=40).map(lambda m: "[" + "".join(m) + "]"),
)
COUNTS = st.sampled_from(
    ["*", "+", "?", "{2}", "{30}", "{100}", "{999,}", "{0,500}", "{10,2000}", "{40000}", "{100}?", "{50}+"]
)


def wrapped(inner):
    repeated = st.tuples(inner, COUNTS).map(lambda t: f"(?:{t[0]}){t[1]}")
    return st.one_of(
        repeated,
        st.tuples(inner, COUNTS).map(lambda t: f"(?:{t[0]}){t[1]}"),
        st.lists(inner, min_size=2, max_size=6).map("".join),
        st.lists(inner, min_size=2, max_size=6).map(lambda parts: "(" + "|".join(parts) + ")"),
        st.tuples(st.sampled_from(["(?=", "(?!", "(?>", "(", "(?i:"]), inner).map(lambda t: t[0] + t[1] + ")"),
    )


PATTERNS = st.recursive(ATOMS, wrapped, max_leaves=30)

CHILD = """
import json, re, resource, sys, time, warnings
warnings.simplefilter("ignore")
from environments.common.searches import compiled
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for line in sys.stdin:
    began = time.process_time()
    compiled("(?i:warm)" + str(began))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    made = compiled(json.loads(line), re.IGNORECASE)
    spent, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([made is not None, spent, (after - before) / 1024]), flush=True)
"""
MAX_CPU_S = 1.0
MAX_MB = 60


@pytest.fixture(scope="module")
def compiler():
    """Compiles patterns in a process of limited memory, and tells what each one took."""
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lock = threading.Lock()

    def took(source):
        with lock:
            child.stdin.write(json.dumps(source) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
        assert line, f"the compiler died of {source!r}"
        return json.loads(line)

    yield took
    child.stdin.close()
    child.wait(10)


@settings(max_examples=150, deadline=None)
@given(PATTERNS)
def test_whatever_is_accepted_compiles_within_bounds(compiler, source):
    _, cpu_s, megabytes = compiler(source)
    assert cpu_s < MAX_CPU_S
    assert megabytes < MAX_MB


@pytest.mark.parametrize("unit", ["a", "[ab]", "(a)", "(?:a|bc)", r"\d", "(?=a)b", "(?i:é)", "[ab]{30}", "(?:ab?)", r"(?:x\b)"])
def test_the_largest_that_is_accepted_compiles_within_bounds(compiler, unit):
    sources = (f"(?:{unit}){{{n}}}" for n in range(50_000, 0, -250))
    largest = next(source for source in sources if compiled_size(source))
    accepted, cpu_s, megabytes = compiler(largest)
    assert accepted
    assert cpu_s < MAX_CPU_S
    assert megabytes < MAX_MB


def compiled_size(source):
    try:
        return size_of(source).nodes
    except OversizeError:
        return None


@given(st.text(alphabet="ab(){}[]|?*+\\^-,0159:#=!<>Pxi \n", max_size=60))
def test_any_text_is_measured_or_refused(source):
    try:
        size = size_of(source)
    except OversizeError:
        return
    try:
        re.compile(source)
    except (re.error, RecursionError, OverflowError):
        return
    re.compile(size.source)
    assert regex.compile(size.source, regex.VERSION0) is not None or compiled(source) is None


SETS = {
    "one large set": "[" + "".join(chr(0x100 + 2 * i) for i in range(4_000)) + "]",
    "a large set repeated": "[^" + "".join(chr(0x100 + 2 * i) for i in range(300)) + "]*[qr]",
    "sets as alternatives": "|".join(
        "[" + "".join(chr(0x100 + 300 * k + i) for i in range(0, 300, 2)) + "]b" for k in range(20)
    ),
    "alternatives repeated": "(?:" + "|".join(chr(0x100 + 2 * i) for i in range(1_000)) + "|a)*[qr]",
    "a class repeated": r"[\w\d]*[qr]",
}


@pytest.mark.parametrize("source", SETS.values(), ids=SETS)
def test_a_search_with_large_sets_in_a_megabyte_ends(source):
    began = time.process_time()
    with contextlib.suppress(SearchTimeoutError):
        last_match(compiled(source, re.IGNORECASE), "a" * 1_000_000 + "!", 0.5)
    assert time.process_time() - began < 12  # 2 s on an idle machine


def test_a_large_set_is_searched_for_in_a_text_of_ordinary_length():
    pattern = compiled(SETS["one large set"])
    assert last_match(pattern, "a" * 10_000 + chr(0x102), 0.5)[0] == chr(0x102)


def test_the_cache_is_bounded_by_size_and_number():
    cache = searches._Cache()
    for i in range(40):
        cache.get(f"a{i}b{{40000}}", 0)
        assert cache.nodes <= searches.MAX_CACHED_NODES
    assert 5 < len(cache) < 20
    for i in range(2 * searches.MAX_CACHED):
        cache.get(f"a{i}", 0)
    assert len(cache) == searches.MAX_CACHED
    assert cache.get("a1023", 0) is cache.get("a1023", 0)
