"""Names of owners where there is little room: unique, complete, and cut where nothing that tells them apart is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import chain

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.render.sample_machines import SampleShape, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.views.build import CPUOwner, build_view
from mooring.views.devices import cut, short_names, unique_names
from mooring.views.svg.picture import svg_text
from mooring.views.wording import owner_marks

WORD = st.text("ab", min_size=1, max_size=4) | st.sampled_from(["a" * 63, "a" * 62 + "b", "kube-system"])
POD = st.builds(
    "{}-{}".format, WORD | st.just("p" * 240), st.integers(0, 3) | st.sampled_from(["x2x4z", "7f9c8d5b6-a"])
)
NAME = st.builds("{}/{}/{}".format, WORD, POD, WORD) | st.builds("{}/{}".format, WORD, POD)
OWNERS = st.lists(st.tuples(NAME, st.sampled_from(["u1", "u2", "u3"])), min_size=1, max_size=14)


@given(OWNERS)
@example([("a/b-0/c", "u1"), ("a/b-0/c", "u1"), ("a/b-0/c", "u2")])
def test_no_two_owners_have_a_form_of_their_names_in_common(owners: list[tuple[str, str]]) -> None:
    names = unique_names([label for label, _ in owners], [uid for _, uid in owners])
    assert len(set(names)) == len(owners)
    found = short_names(names, owner_marks(len(owners)))
    every = list(chain.from_iterable(found))
    assert len(set(every)) == len(every)
    assert [forms[0] for forms in found] == list(names)
    for forms in found:
        assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)


@given(WORD, st.integers(0, 20), st.integers(0, 300))
def test_a_cut_name_keeps_its_ordinal(name: str, ordinal: int, room: int) -> None:
    short = cut(f"{name}-{ordinal}", room)
    assert short.endswith(f"-{ordinal}") or not short
    assert len(short) <= room


@given(OWNERS, st.sampled_from([2, 8, 24]))
@example([*[("a/a-0/a", "u1")] * 3, *[("a/a-0", "u1")] * 3, ("a" * 63 + "/a-0", "u1"), ("a/a-0/a", "u1")], 24)
@settings(max_examples=40, deadline=None)
def test_the_picture_names_every_owner_once_in_its_list_and_never_two_alike(
    owners: list[tuple[str, str]], cores: int
) -> None:
    machine = regular(SampleShape(nodes=2, cores=cores))
    total = machine.info.num_cores
    held = [
        CPUOwner(label, uid, CPUSet.from_ids([index, index + total // 2] if index < total // 2 else []))
        for index, (label, uid) in enumerate(owners)
    ]
    view = build_view(machine, owners=held)
    texts = [node.text or "" for node in ET.fromstring(svg_text(view)).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314 - our own text
    for owner in view.owners:
        listed = [text for text in texts if text in owner.forms]
        assert listed
        others = {form for other in view.owners if other is not owner for form in other.forms}
        assert not others & set(listed)


def test_a_name_over_one_core_runs_on_over_cores_without_a_name() -> None:
    view = build_view(regular(SampleShape(cores=8)), owners=[CPUOwner("data/database-0/db", "u", CPUSet.parse("0,8"))])
    assert svg_text(view).count(">data/database-0/db</text>") == 2


def test_a_form_that_two_owners_would_share_is_left_out() -> None:
    found = short_names(["a/database-0/x", "a/dashbase-0/x"], ["a", "b"])
    assert [forms[-1] for forms in found] == ["dat…-0", "das…-0"]
