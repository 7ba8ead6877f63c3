"""A scenario: the nine end-to-end cases of KEP-6122, numbered as there, with containerd, runc and the whole agent.

A program in each container tells from inside what its mounted file says, where the kernel lets it run, and when each of
that changed (:mod:`tests.e2e.guest.inside`). Two pods go through most cases: ``node`` has the node's delay
(``scale-delay-time``), ``own`` one of its own, which is as long. Both delays are minimums that are asserted; how much
longer it takes is measured and told.

Values: ``delay`` in seconds.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.e2e.guest import inside, sight
from tests.e2e.guest.node import Wanted
from tests.e2e.guest.report import tell
from tests.e2e.guest.resizing import (
    GRACE,
    MIB,
    NO_ROOM,
    SECOND,
    STATE,
    Asked,
    Play,
    delay,
    meanwhile,
    new_version,
    old_version,
    refusal,
    until,
    wait_until,
)

PLAY = Play()
LEFT: list[Asked] = []
"""What an older version left undone."""


def step_the_node_comes_up_with_a_delay_of_its_own_and_one_of_a_pod() -> str:
    PLAY.come_up()
    node = PLAY.run("node", 4)
    own = PLAY.run("own", 2, **{GRACE: str(delay())})
    for within in (node, own):
        assert within.file() == within.cpus() == within.last("file")
    return f"node has {node.cpus()}, own has {own.cpus()}"


def step_1_a_scale_down_is_told_at_once_and_applied_after_its_delay() -> str:
    grown = [PLAY.grow("node", 6), PLAY.grow("own", 4)]
    PLAY.shrink(("node", 5), ("own", 3))
    return f"from {grown} to {[PLAY.inside(name).cpus() for name in PLAY.pods]}"


def step_2_nobody_else_gets_the_cpus_before_the_delay_is_over() -> str:
    grown = PLAY.grow("node", 8)
    asked, pending = PLAY.begin_to_shrink("node", 4)
    late = PLAY.node.run_sandbox(Wanted("late", "4", 24 * MIB))
    create = partial(PLAY.node.create, late, ("sleep", "1000000"))
    meanwhile(asked, holds=NO_ROOM in refusal(create), what="a pod got CPUs that were not free")
    before = PLAY.inside("own").cpus(), PLAY.inside("own").file(), PLAY.amounts("own")
    said = PLAY.refusal("own", 7)
    meanwhile(asked, holds=NO_ROOM in said, what=said)
    assert (PLAY.inside("own").cpus(), PLAY.inside("own").file(), PLAY.amounts("own")) == before
    meanwhile(asked, holds=PLAY.inside("node").cpus() == grown, what=PLAY.inside("node").cpus())
    PLAY.end_to_shrink(asked, pending)
    create()
    PLAY.node.cri.start(late.container)
    PLAY.pods["late"] = late
    own = PLAY.grow("own", 6)
    found = sight.allowed(late.cgroup)
    assert found is not None
    given_back = inside.ids(grown) - inside.ids(pending)
    assert given_back <= inside.ids(str(found.cpus)) | inside.ids(own), (given_back, found, own)
    assert not PLAY.overlaps()
    PLAY.remove("late")
    PLAY.shrink(("own", 3))
    return said.rpartition("desc = ")[2]


def step_3_a_scale_up_before_the_delay_is_over_drops_what_was_pending() -> str:
    for name, larger, smaller in (("node", 6, 4), ("own", 4, 2)):
        PLAY.grow(name, larger)
        PLAY.begin_to_shrink(name, smaller)
    began = time.monotonic_ns()
    # One becomes larger than it was, the other as large.
    grown = {"node": PLAY.grow("node", 8), "own": PLAY.grow("own", 4)}
    assert not any("pending" in PLAY.container(name) for name in grown)
    wait_until(began + (delay() + 2) * SECOND)
    for name, cpus in grown.items():
        within = PLAY.inside(name)
        assert within.cpus() == within.file() == within.last("cpus") == cpus
        assert not within.lines("cpus", since=began + delay() * SECOND // 2)
    return f"{grown}"


def step_4_a_second_scale_down_replaces_the_first_and_waits_its_full_delay() -> str:
    told = []
    for name, first, second in (("node", 6, 5), ("own", 2, 3)):
        before = PLAY.inside(name).cpus()
        one, pending = PLAY.begin_to_shrink(name, first)
        wait_until(one.sent + SECOND)
        other, replaced = PLAY.begin_to_shrink(name, second)
        meanwhile(one, holds=other.before == before, what=other.before)
        told.append((one, other, pending, replaced))
    for one, other, pending, replaced in told:
        PLAY.end_to_shrink(other, replaced)
        assert pending not in [line.text for line in PLAY.inside(one.pod).lines("cpus", since=one.sent)]
    return f"{[(pending, replaced) for _, _, pending, replaced in told]}"


def step_5_after_a_restart_the_node_s_delay_begins_anew_and_a_pod_s_own_goes_on() -> str:
    PLAY.grow("node", 7)
    PLAY.grow("own", 5)
    node, to_node = PLAY.begin_to_shrink("node", 5)
    own, to_own = PLAY.begin_to_shrink("own", 3)
    until(lambda: on_disk("preAssignments").keys() == {"uid-own"}, "the state file has what is pending")
    before = on_disk("preAssignments")
    deadline = before["uid-own"]["app"]["applyAt"]
    assert own.sent + delay() * SECOND <= deadline <= own.answered + delay() * SECOND
    began = PLAY.restart(*new_version())
    assert (PLAY.inside("node").file(), PLAY.inside("own").file()) == (to_node, to_own)
    # Either the old deadline stands, or it has passed.
    after = on_disk("preAssignments").get("uid-own", before["uid-own"])
    assert after == before["uid-own"], (before, after)
    assert "pending" in PLAY.container("node"), PLAY.container("node")
    PLAY.end_to_shrink(own, to_own, since=deadline - delay() * SECOND)
    PLAY.end_to_shrink(node, to_node, since=began)
    return f"ready after {(time.monotonic_ns() - began) / 1e9:.0f} s"


def step_6_without_exposure_a_pod_keeps_running_and_a_scale_down_keeps_its_delay() -> str:
    before = seen()
    PLAY.restart(*new_version(exposed=False))
    for name in before:
        until(partial(PLAY.inside(name).says, "file", ""), f"{name} is told nothing")
    assert seen() == before
    PLAY.run("silent", 2)
    assert PLAY.inside("silent").file() == inside.NOT_TOLD
    for name, cpus in (("node", 6), ("silent", 3)):
        PLAY.grow(name, cpus)
    PLAY.shrink(("node", 5), ("silent", 2))
    assert (PLAY.inside("node").file(), PLAY.inside("silent").file()) == ("", inside.NOT_TOLD)
    return str(seen())


def step_7_with_exposure_again_it_is_told_and_so_is_one_that_is_created_anew() -> str:
    before = seen()
    PLAY.restart(*new_version())
    for name in ("node", "own"):
        until(partial(PLAY.inside(name).says, "file", before[name]), f"{name} is told again")
    assert seen() == before
    assert PLAY.inside("silent").file() == inside.NOT_TOLD
    within = PLAY.again("silent", 1)
    assert (within.file(), inside.size_of(within.cpus())) == (within.cpus(), 2)
    for name, cpus in (("node", 6), ("silent", 3)):
        PLAY.grow(name, cpus)
    PLAY.shrink(("node", 5), ("silent", 2))
    PLAY.remove("silent")
    return f"{before}"


def step_8_an_older_version_leaves_a_pod_with_what_it_has_and_resizes_nothing() -> str:
    PLAY.grow("node", 7)
    PLAY.grow("own", 5)
    asked = [PLAY.begin_to_shrink(name, cpus)[0] for name, cpus in (("node", 5), ("own", 3))]
    LEFT.extend(asked)
    PLAY.restart(*old_version())
    # As a kubelet does, it drops what it does not know when it writes.
    PLAY.run("before", 2)
    until(lambda: not on_disk("preAssignments") and not on_disk("baselines"), "the state file has neither")
    stays(*asked)
    PLAY.node.resize(PLAY.pods["node"], "6")
    PLAY.node.resize(PLAY.pods["node"], "5")
    stays(*asked)
    for one in asked:
        assert PLAY.inside(one.pod).file() == ""
        assert one.before == PLAY.container(one.pod)["cpus"]
    return f"{[one.before for one in asked]} stay"


def step_9_a_newer_version_takes_the_pods_over_and_resizes_them() -> str:
    had = seen()
    assert PLAY.inside("before").file() == inside.NOT_TOLD
    PLAY.restart(*new_version())
    assert seen() == had
    for one in LEFT:
        # Which CPUs it had first was lost with the older version, so that it keeps what it has.
        until(partial(PLAY.inside(one.pod).says, "file", one.before), f"{one.pod} is told again")
        assert "pending" not in PLAY.container(one.pod)
    said = PLAY.refusal("node", 6)
    assert "Not allowed to reduce container exclusively allocated pool below original" in said, said
    PLAY.remove("own")
    within = PLAY.again("before", 1)
    first = within.cpus()
    assert (within.file(), inside.size_of(first)) == (first, 2)
    PLAY.grow("before", 4)
    PLAY.shrink(("before", 2))
    assert within.cpus() == first
    return str(seen())


def step_the_programs_never_ran_elsewhere_and_nobody_said_no_to_them() -> str:
    for name in PLAY.pods:
        assert not PLAY.inside(name).complaints(), (name, PLAY.inside(name).complaints())
    errors = [line for line in PLAY.node.log("agent").splitlines() if '"level": "error"' in line]
    assert not errors, errors
    assert not PLAY.overlaps()
    tell("figures", milliseconds=PLAY.figures)
    return json.dumps({what: median(found) for what, found in PLAY.figures.items()})


def seen() -> dict[str, str]:
    """Return where the program of each pod may run, by name of the pod."""
    return {name: PLAY.inside(name).cpus() for name in PLAY.pods}


def stays(*asked: Asked) -> None:
    """See the CPUs of pods stay for longer than the delay."""
    wait_until(time.monotonic_ns() + (delay() + 1) * SECOND)
    for one in asked:
        assert PLAY.inside(one.pod).cpus() == one.before
        assert not PLAY.inside(one.pod).lines("cpus", since=one.sent)


def on_disk(member: str) -> dict[str, Any]:
    """Return a part of the agent's state file, which is in the kubelet's format; empty where it has none."""
    data = json.loads(json.loads(Path(STATE).read_text(encoding="utf-8")).get("data") or "{}")
    return dict(data.get(member) or {})


def median(found: list[float]) -> float:
    return sorted(found)[len(found) // 2]
