"""Maps by pod uid that grow one pod at a time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.pod import with_entry, without_entry


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 999)), max_size=60), st.integers(100, 700))
def test_a_large_map_by_uid_is_what_a_copied_dict_would_be(steps: list[tuple[bool, int]], size: int) -> None:
    grown: Mapping[str, int] = {}
    for number in range(size):
        grown = with_entry(grown, str(number), number)
    copied, kept = {str(number): number for number in range(size)}, []
    for is_new, number in steps:
        kept.append((grown, dict(copied)))
        if is_new:
            grown, copied = with_entry(grown, str(number), -number), {**copied, str(number): -number}
        else:
            grown = without_entry(grown, str(number))
            copied.pop(str(number), None)
    for one, other in [*kept, (grown, copied)]:
        assert one == other
        assert (list(one.items()), len(one)) == (list(other.items()), len(other))
        assert "none" not in one


@pytest.mark.parametrize("refused", [0, 1, 3])
def test_pods_that_come_one_after_another_copy_few_of_the_others(refused: int) -> None:
    pods, copied = 20_000, 0
    grown: Mapping[str, int] = {}
    for number in range(pods):
        for _ in range(refused):
            tried = with_entry(grown, "refused", number)
            grown, before = without_entry(tried, "refused"), grown
            copied += _anew(before, tried) + _anew(tried, grown)
        grown, before = with_entry(grown, str(number), number), grown
        copied += _anew(before, grown)
    assert copied < pods * 30 * (refused + 1)


def _anew(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return how many entries of a map are in layers that another one does not have."""
    shared = {id(layer) for layer in getattr(before, "layers", (before,))}
    return sum(len(layer) for layer in getattr(after, "layers", (after,)) if id(layer) not in shared)
