from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.agent.cgroups.locate import expanded_slice, group_path

WORDS = st.lists(st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True), min_size=1, max_size=5)
ID = "3f" * 32


@given(WORDS)
def test_every_slice_lies_in_the_slice_that_its_name_begins_with(words: list[str]) -> None:
    path = expanded_slice("-".join(words) + ".slice")
    assert path is not None
    parts = path.split("/")
    assert len(parts) == len(words)
    assert parts[-1] == "-".join(words) + ".slice"
    assert all(low.startswith(high.removesuffix(".slice") + "-") for high, low in pairwise(parts))


@given(st.text(max_size=60))
def test_no_name_leads_out_of_the_hierarchy(name: str) -> None:
    path = group_path(name)
    assert path is None or (path and not path.startswith("/") and ".." not in path.split("/"))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (f"/kubepods/podb2/{ID}", f"kubepods/podb2/{ID}"),
        (f"kubepods-podb2.slice:cri-containerd:{ID}", f"kubepods.slice/kubepods-podb2.slice/cri-containerd-{ID}.scope"),
        (f":runc:{ID}", f"system.slice/runc-{ID}.scope"),
        (f"-.slice:crio:{ID}", f"crio-{ID}.scope"),
        ("a.slice:crio:b.slice", "a.slice/b.slice"),
        ("/kubepods.slice/kubepods-podb2.slice", "kubepods.slice/kubepods-podb2.slice"),
        ("kubepods-podb2.slice", "kubepods.slice/kubepods-podb2.slice"),
        ("-.slice", None),
        ("not a slice:crio:b", None),
        ("a.slice:crio:", None),
        ("", None),
        ("/", None),
        ("../../init", None),
    ],
)
def test_both_forms_of_names_lead_to_the_group(name: str, path: str | None) -> None:
    assert group_path(name) == path
