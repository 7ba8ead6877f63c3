"""The hash behind the checksums."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.checkpoint import checksum


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)],
    ids=["empty", "a", "foobar"],
)
def test_published_values_are_met(text: bytes, expected: int) -> None:
    assert checksum.plain_fnv1a_32(text) == expected
    assert checksum.fnv1a_32(text) == expected


@given(st.binary(max_size=400))
def test_accelerator_equals_the_plain_form(data: bytes) -> None:
    accelerated = pytest.importorskip("fnv_hash_fast").fnv1a_32
    assert accelerated(data) == checksum.plain_fnv1a_32(data) == checksum.fnv1a_32(data)


def test_plain_form_is_used_when_the_accelerator_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fnv_hash_fast", None)
    # The choice is made once a process: a second copy of the module makes it anew.
    spec = importlib.util.spec_from_file_location("checksum_anew", checksum.__file__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    monkeypatch.setattr(anew, "plain_fnv1a_32", len)
    assert anew.fnv1a_32(b"foobar") == len(b"foobar")
    assert checksum.plain_fnv1a_32(b"foobar") == 0xBF9CF968
