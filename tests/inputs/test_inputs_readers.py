"""Every reader of outside bytes takes its first inputs, and damaged ones; `make fuzz-inputs` goes on from there."""

from __future__ import annotations

from random import Random

import pytest
from tests.inputs.judging import damaged, judged
from tests.inputs.readers import READERS, Reader

DAMAGED = 12
"""Inputs made of the first ones, for each reader."""


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_inputs_end_in_one_line_or_an_answer(reader: Reader) -> None:
    draw = Random(reader.name)  # noqa: S311 - the same damage everywhere
    seeds = sorted(reader.seeds(), key=len)[:20]
    for data in seeds[:4]:
        judged(reader, data)
    for _ in range(DAMAGED):
        judged(reader, damaged(draw.choice(seeds), draw))


_METADATA = b'{"metadata":{"name":"n","namespace":"d","uid":"u"},'

# What the search has found; each was a traceback, a hang or a message of several lines.


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("journal", b'{"kind":"Agent\\nJournal","version":1,"checksum":"","body":{}}'),
        ("claim", _METADATA + b'"status":{"allocation":{"devices":{"results":[{}]}}}}'),
        ("api-pod", _METADATA + b'"spec":{"containers":[{"name":[]}]},"status":{"containerStatuses":[{"name":"a"}]}}'),
        ("machine-text", b'<?xml version="1.0" encoding="UTF78"?><topology version="2.0"/>'),
        ("machine-text", b'<?xml version="1.0" encoding="utf-7"?><topology version="2.0"/>'),
        ("extender", b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"\xb4"}}]}}'),
        ("node-verdict", bytes.fromhex("48f0c19f")),
        ("node-verdict", bytes.fromhex("c803a527")),
        *(("podresources-dump", b'{"podResources":[{"containers":[{"cpuIds":[%d]}]}]}' % one) for one in (-1, 10**17)),
        ("interrupt-journal", b'{"x":' + 5000 * b"[" + 5000 * b"]" + b"}"),
    ],
)
def test_what_the_search_found_stays_mended(name: str, data: bytes) -> None:
    judged(next(reader for reader in READERS if reader.name == name), data)
