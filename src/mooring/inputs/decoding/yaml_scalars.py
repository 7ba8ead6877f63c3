"""What a plain word means in Kubernetes' YAML, and documents as YAML text.

Source: sigs.k8s.io/yaml 1.6 on go.yaml.in/yaml v2, which kubelet and API server v1.37.1 use: YAML 1.1 words
(``on`` is a boolean, ``010`` is eight) without its base-60 numbers, and with dates left as text.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

import yaml

from mooring.lazy import lazily

with lazily():
    import msgspec

Scalar = str | int | float | bool | None
"""What a word can stand for."""

_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL = ("", "~", "null", "Null", "NULL")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(_NULL, None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_FIRST_OF_A_WORD = frozenset("yYnNtTfFoO~")
_FIRST_OF_A_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 400
_UINT64_MAX = 2**64 - 1
_INT64_MIN = -(2**63)


def word_value(word: str) -> Scalar:
    """Return what the unquoted ``word`` stands for.

    >>> [word_value(word) for word in ("on", "010", "1e3", "1:30", "2024-01-01", "100m")]
    [True, 8, 1000.0, '1:30', '2024-01-01', '100m']
    """
    first = word[:1]
    if first in _FIRST_OF_A_NUMBER:
        return _number_or_text(word)
    if not first or first in _FIRST_OF_A_WORD:
        return _WORDS.get(word, word)
    return word


@lru_cache(maxsize=4096)
def _number_or_text(word: str) -> Scalar:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) > _LONGEST_NUMBER:
        return word
    plain = word if word[0] == "." else word.replace("_", "")
    integer = _INTEGER.fullmatch(plain)
    if integer:
        value = _integer(*integer.groups())
        if _INT64_MIN <= value <= _UINT64_MAX:
            return value
    if not _FLOAT.fullmatch(plain):
        return word
    number = float(plain)
    # Out of range is no number for Go, so the word stays a word.
    return word if math.isinf(number) else number


def _integer(sign: str, hexadecimal: str | None, binary: str | None, octal: str | None, decimal: str | None) -> int:
    for digits, base in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)):
        if digits is not None:
            return -int(digits, base) if sign == "-" else int(digits, base)
    raise AssertionError("one of the four forms matched")


def yaml_text(document: object) -> str:
    """Return a document as YAML, members in their order.

    >>> print(yaml_text({"kind": "Plan", "pods": []}), end="")
    kind: Plan
    pods: []
    """
    text: str = yaml.safe_dump(
        msgspec.to_builtins(document), sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text
