"""The recordings are those that were recorded."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from tests.planner.recordings import CORPORA, lines

ROW = re.compile(r"^\| (\S+) \| (\d+) \|(?: [^|]+ \|)? `([0-9a-f]{64})` \|$", re.MULTILINE)
LISTED = [
    (f"{folder}{name}", count, digest)
    for folder in ("", "releases/")
    for name, count, digest in ROW.findall((CORPORA / folder / "README.md").read_text(encoding="utf-8"))
]


def test_every_file_is_listed_once() -> None:
    listed = [name for name, _, _ in LISTED]
    present = [path.relative_to(CORPORA) for path in CORPORA.rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(str(path) for path in present if path.name != "README.md")


@pytest.mark.parametrize(("name", "count", "digest"), LISTED)
def test_files_are_unmodified(name: str, count: str, digest: str) -> None:
    data = (CORPORA / name).read_bytes()
    assert sha256(data).hexdigest() == digest
    found = len(lines(name)) if name.endswith(".gz") else len(data.splitlines())
    assert found == int(count)
