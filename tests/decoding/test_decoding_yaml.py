"""YAML as Kubernetes reads it; the values of words are those of sigs.k8s.io/yaml 1.6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.values import cases, refusal

from mooring.inputs.decoding.documents import documents_in
from mooring.inputs.decoding.fields import Value

DEEPEST = 100

TABLE = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8"))
WORDS: list[tuple[str, Value]] = [
    *((word, row["value"]) for row in TABLE for word in row.get("words", ())),
    *((word, word) for row in TABLE for word in row.get("same", ())),
    ("9" * 5000, "9" * 5000),
]


def read(text: str) -> list[Value]:
    return [document.content for document in documents_in(text.encode(), "f.yaml")]


@pytest.mark.parametrize(("word", "value"), WORDS)
def test_plain_word_means_what_kubernetes_makes_of_it(word: str, value: Value) -> None:
    [document] = read(f"- {word}\n")
    assert isinstance(document, list)
    [found] = document
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_words_are_floats_until_they_are_refused() -> None:
    assert (
        refusal(read, "a: .nan") == "f.yaml:1:4: .nan is not a number that JSON knows; put it in quotes if it is a text"
    )


def test_quoted_words_stay_text() -> None:
    assert read("a: 'on'\nb: \"010\"\nc: |\n  on\nd: !!str 5\n") == [{"a": "on", "b": "010", "c": "on\n", "d": "5"}]


def test_keys_become_texts() -> None:
    assert read("on: 1\n5: 2\n1.5: 3\n'null': 4\n") == [{"true": 1, "5": 2, "1.5": 3, "null": 4}]


def test_documents_know_their_line_and_number() -> None:
    found = documents_in(b"# nothing\n---\n---\na: 1\n---\nb: 2\n", "f.yaml")
    assert [(document.index, document.source, document.content) for document in found] == [
        (2, "f.yaml:4", {"a": 1}),
        (3, "f.yaml:6", {"b": 2}),
    ]


def test_aliases_and_merge_keys_are_followed() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nuse: {<<: [*base, *more], a: 9}\nagain: *base\n"
    assert read(text) == [
        {"base": {"a": 1, "b": 2}, "more": {"b": 3, "c": 4}, "use": {"a": 9, "b": 2, "c": 4}, "again": {"a": 1, "b": 2}}
    ]


def test_anchor_of_one_document_is_unknown_in_the_next() -> None:
    assert "f.yaml:3:4: the alias *x has no anchor" in refusal(read, "a: &x 1\n---\nb: *x\n")


@pytest.mark.parametrize(("text", "message"), cases(__file__, "refused-texts.yaml", "text", "says"))
def test_what_cannot_be_used_is_refused_with_its_place(text: str, message: str) -> None:
    assert message in refusal(read, text)


def test_billion_laughs_are_refused_before_they_are_counted_out() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    message = refusal(read, f"l0: &l0 lol\n{levels}")
    assert "aliases repeat more than 100000 nodes" in message


def test_merge_keys_cannot_multiply_either() -> None:
    keys = ", ".join(f"k{n}: 1" for n in range(2000))
    text = f"base: &base {{{keys}}}\nlist:\n" + "- {<<: *base}\n" * 100
    assert "aliases repeat" in refusal(read, text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "a: " + "[" * 101 + "]" * 101])
def test_depth_is_bounded(text: str) -> None:
    message = refusal(read, f"# no JSON\n{text}")
    assert f"nested deeper than {DEEPEST} levels" in message or "not valid YAML" in message


def test_aliases_cannot_stack_up_depth() -> None:
    half = DEEPEST // 2 - 1
    text = f"a: &a {'[' * half}{']' * half}\n"
    assert read(f"{text}b: {'[' * half}*a{']' * half}\n")
    assert f"nested deeper than {DEEPEST}" in refusal(read, f"{text}b: {'[' * (half + 2)}*a{']' * (half + 2)}\n")


def test_allowed_depth_is_enough() -> None:
    assert read("[" * DEEPEST + "]" * DEEPEST)


printable = st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.just(" ")
simple = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(printable)
)
values = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(printable, max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(values.filter(lambda value: value is not None))
def test_json_text_means_the_same_as_yaml(value: Value) -> None:
    assert read(f"# no JSON\n{json.dumps(value, ensure_ascii=False)}") == [value]
